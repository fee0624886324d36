/* actors/admin/page_private.h -- what the parts of the Prometheus page share. */
#pragma once
#include "actors/admin/page.h"

void page_head(FILE *to, const char *name, const char *type, const char *help);
	/* HELP and TYPE of pointsman_NAME. */
void page_label(FILE *to, const char *value);   /* quoted and escaped */
void page_tenants(FILE *to, const struct pm_view *view);
	/* What the first PM_SHOW_TENANTS_MAX tenants of the documents have used; nothing where
	 * there are none. */
