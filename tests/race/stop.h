/* tests/race/stop.h -- a forked writer that ends before a store; the points are its program's. */
#pragma once
#include <stdint.h>
#include <unistd.h>

static uint64_t stores_left;            /* before this process ends; 0: it lives on */

void
points_store(void)
{
	if (stores_left != 0 && --stores_left == 0)
		_exit(0);
}
