/* tests/unit/test_listeners.c -- one socket per ingress and address, all of them on one port. */
#include <criterion/criterion.h>
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "actors/supervisor/supervisor.h"

static struct supervisor S;

static unsigned
port_of(int fd)
{
	struct sockaddr_in in;
	socklen_t len = sizeof in;

	cr_assert_eq(getsockname(fd, (struct sockaddr *)&in, &len), 0);
	return ntohs(in.sin_port);
}

Test(listeners, ingresses_share_one_port_with_sockets_of_their_own)
{
	struct manifest m = {.gateway = {.n_listen = 1, .ingresses = 3}};
	const char *why = "";

	log_open("test", 0, 0, 0, LEVEL_ERROR);
	strcpy(m.gateway.listen[0].host, "127.0.0.1");
	cr_assert_eq(listeners_open(&S, &m, &why), 0, "%s", why);
	cr_assert_eq(S.n_listeners, 3);
	for (unsigned i = 0; i < 3; i++) {
		cr_assert_eq(S.listener[i].index, i);
		cr_assert_eq(port_of(S.listener[i].fd), port_of(S.listener[0].fd));
		cr_assert(fcntl(S.listener[i].fd, F_GETFL) & O_NONBLOCK);
		cr_assert(fcntl(S.listener[i].fd, F_GETFD) & FD_CLOEXEC);
	}
	listeners_close(&S);
}

Test(listeners, port_of_a_stranger_is_refused_although_it_would_share)
{
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct manifest m = {.gateway = {.n_listen = 1, .ingresses = 1}};
	int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
	const char *why = "";

	log_open("test", 0, 0, 0, (enum log_level)0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
	cr_assert_eq(bind(fd, (struct sockaddr *)&in, sizeof in), 0);
	cr_assert_eq(listen(fd, 1), 0);
	strcpy(m.gateway.listen[0].host, "127.0.0.1");
	m.gateway.listen[0].port = (uint16_t)port_of(fd);
	cr_assert_eq(listeners_open(&S, &m, &why), -EADDRINUSE);
	cr_assert_eq(S.n_listeners, 0);
	close(fd);
}
