/* tests/unit/test_listeners.c -- one socket per ingress and address, all of them on one port. */
#include <criterion/criterion.h>
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
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

/* --- unix sockets --- */

static char path[64];

static void
folder_make(void)
{
	strcpy(path, "/tmp/pm-listeners-XXXXXX");
	cr_assert(mkdtemp(path));
	strcat(path, "/s");
}

static void
folder_remove(void)
{
	unlink(path);
	*strrchr(path, '/') = '\0';
	cr_assert_eq(rmdir(path), 0, "the folder is empty again");
}

static int
socket_at(bool listens)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	strcpy(at.sun_path, path);
	if (listens) {
		cr_assert_eq(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
		cr_assert_eq(listen(fd, 1), 0);
	} else if (connect(fd, (struct sockaddr *)&at, sizeof at) < 0) {
		close(fd);
		return -errno;
	}
	return fd;
}

static int
open_unix(uint32_t ingresses, const char *mode, const char *group)
{
	struct manifest m = {.gateway = {.n_listen = 1, .ingresses = ingresses}};
	const char *why = "";

	log_open("test", 0, 0, 0, (enum log_level)0);
	strcpy(m.gateway.listen[0].path, path);
	strcpy(m.gateway.socket_mode, mode);
	strcpy(m.gateway.socket_group, group);
	return listeners_open(&S, &m, &why);
}

Test(listeners, all_ingresses_accept_from_one_unix_socket_that_is_removed_at_the_end,
     .init = folder_make, .fini = folder_remove)
{
	struct stat st;
	int fd, got;

	cr_assert_eq(open_unix(3, "0640", ""), 0);
	cr_assert_eq(S.n_listeners, 3);
	cr_assert_eq(lstat(path, &st), 0);
	cr_assert(S_ISSOCK(st.st_mode) && (st.st_mode & 07777) == 0640);
	for (unsigned i = 0; i < 3; i++) {
		cr_assert_eq(S.listener[i].index, i);
		cr_assert(fcntl(S.listener[i].fd, F_GETFL) & O_NONBLOCK);
		cr_assert(fcntl(S.listener[i].fd, F_GETFD) & FD_CLOEXEC);
		fd = socket_at(false);
		cr_assert_geq(fd, 0);
		got = accept(S.listener[i].fd, NULL, NULL);
		cr_assert_geq(got, 0);
		close(got);
		close(fd);
	}
	listeners_close(&S);
	cr_assert_eq(socket_at(false), -ENOENT);
}

Test(listeners, file_of_a_unix_socket_is_replaced_only_if_nobody_listens, .init = folder_make,
     .fini = folder_remove)
{
	int fd = socket_at(true);

	cr_assert_eq(open_unix(1, "0660", ""), -EADDRINUSE);
	cr_assert_eq(S.n_listeners, 0);
	close(fd);                      /* killed: its file stays */
	cr_assert_eq(open_unix(1, "0660", ""), 0);
	fd = socket_at(false);
	cr_assert_geq(fd, 0);
	close(fd);
	listeners_close(&S);
}

Test(listeners, file_that_is_no_socket_is_never_removed, .init = folder_make,
     .fini = folder_remove)
{
	int fd = open(path, O_CREAT | O_WRONLY, 0600);

	cr_assert_geq(fd, 0);
	close(fd);
	cr_assert_eq(open_unix(1, "0660", ""), -EEXIST);
	cr_assert_eq(access(path, F_OK), 0);
}

Test(listeners, socket_file_of_a_successor_is_left_to_it, .init = folder_make,
     .fini = folder_remove)
{
	int fd;

	cr_assert_eq(open_unix(1, "0660", ""), 0);
	cr_assert_eq(unlink(path), 0);
	fd = socket_at(true);
	listeners_close(&S);
	cr_assert_eq(access(path, F_OK), 0);
	close(fd);
}

Test(listeners, group_of_a_unix_socket_is_set_or_refused, .init = folder_make,
     .fini = folder_remove)
{
	struct stat st;
	char group[16];

	snprintf(group, sizeof group, "%u", getgid());
	cr_assert_eq(open_unix(1, "0660", group), 0);
	cr_assert_eq(lstat(path, &st), 0);
	cr_assert_eq(st.st_gid, getgid());
	listeners_close(&S);
	cr_assert_eq(open_unix(1, "0660", "no-such-group-here"), -EINVAL);
}
