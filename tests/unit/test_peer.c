/* tests/unit/test_peer.c -- who a request is from, whoever says so. */
#include <criterion/criterion.h>
#include <arpa/inet.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "actors/ingress/peer.h"

static struct peer
of(const char *text)
{
	struct peer p = {.port = 7};

	if (strcmp(text, "unix") == 0) {
		p = (struct peer){.flags = PEER_UNIX};
	} else if (strchr(text, ':')) {
		cr_assert_eq(inet_pton(AF_INET6, text, p.addr), 1);
	} else {
		p.addr[10] = p.addr[11] = 0xff;
		cr_assert_eq(inet_pton(AF_INET, text, p.addr + 12), 1);
	}
	return p;
}

static void
trust(struct manifest_gateway *g, const char *host, unsigned bits)
{
	struct manifest_network *n = &g->trusted[g->n_trusted++];
	struct peer p = of(host);

	memcpy(n->addr, p.addr, 16);
	n->bits = (uint8_t)(strchr(host, ':') ? bits : 96 + bits);
}

/* Trusted: 10.0.0.0/8, 192.0.2.7, 2001:db8::/33 and unix sockets. */
static struct manifest_gateway
gateway(void)
{
	static struct manifest_gateway g;

	g = (struct manifest_gateway){.trusted_unix = true};
	trust(&g, "10.0.0.0", 8);
	trust(&g, "192.0.2.7", 32);
	trust(&g, "2001:db8::", 33);
	return g;
}

/* From this peer, with these fields (last NULL): "address port flags". */
static const char *
client_of(const char *peer, ...)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	static char text[80];
	struct manifest_gateway g = gateway();
	struct http1_head head = {.n_headers = 0};
	struct peer p = of(peer);
	char host[64];
	va_list fields;

	va_start(fields, peer);
	for (const char *f; (f = va_arg(fields, const char *)) != NULL;)
		head.headers[head.n_headers++] = (struct http1_header){
			SLICE_LIT("X-Forwarded-For"), {f, strlen(f)}};
	va_end(fields);
	head.headers[head.n_headers++] =
		(struct http1_header){SLICE_LIT("X-Real-Ip"), SLICE_LIT("9.9.9.9")};
	bool other = peer_forwarded(&g, &head, &p);
	bool v4 = memcmp(p.addr, mapped, 12) == 0;

	inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? p.addr + 12 : p.addr, host, sizeof host);
	cr_assert_eq(other, (p.flags & PEER_TRUSTED) != 0);
	snprintf(text, sizeof text, "%s %u%s%s", host, p.port,
		 p.flags & PEER_TRUSTED ? " said" : "", p.flags & PEER_UNIX ? " unix" : "");
	return text;
}

#define IS(is, ...) cr_assert_str_eq(client_of(__VA_ARGS__, (char *)NULL), is)

Test(peer, header_of_a_stranger_is_ignored)
{
	IS("8.8.8.8 7", "8.8.8.8", "1.2.3.4");
	IS("192.0.2.8 7", "192.0.2.8", "1.2.3.4");
	IS("2001:db8:8000:: 7", "2001:db8:8000::", "1.2.3.4");
}

Test(peer, rightmost_address_that_is_not_trusted_is_the_client)
{
	IS("1.2.3.4 0 said", "10.1.1.1", "1.2.3.4");
	IS("5.6.7.8 0 said", "10.1.1.1", "1.2.3.4, 5.6.7.8");
	IS("5.6.7.8 0 said", "192.0.2.7", "1.2.3.4, 5.6.7.8, 10.0.0.1 ,\t192.0.2.7");
	IS("2001:db8:8000::1 0 said", "2001:db8:7fff::", "1.2.3.4, 2001:db8:8000::1, 10.0.0.1");
	IS("1.2.3.4 0 said", "unix", "1.2.3.4");
}

Test(peer, several_fields_are_one_list_in_their_order)
{
	IS("5.6.7.8 0 said", "10.1.1.1", "1.2.3.4", "5.6.7.8", "10.0.0.1");
	IS("3.3.3.3 0 said", "10.1.1.1", "1.1.1.1, 3.3.3.3", "10.2.2.2, 10.3.3.3");
}

Test(peer, when_all_are_trusted_the_leftmost_is_the_client)
{
	IS("10.0.0.1 0 said", "10.1.1.1", "10.0.0.1, 10.0.0.2");
	IS("10.1.1.1 7", "10.1.1.1", "");
	IS("10.1.1.1 7", "10.1.1.1", " , ,");
	IS(":: 0 unix", "unix", " ");
}

Test(peer, what_is_no_address_ends_the_walk)
{
	IS("10.0.0.2 0 said", "10.1.1.1", "1.2.3.4, unknown, 10.0.0.2");
	IS("10.1.1.1 7", "10.1.1.1", "1.2.3.4, _hidden");
	IS("10.1.1.1 7", "10.1.1.1", "1.2.3.4:99999");
	IS("10.1.1.1 7", "10.1.1.1", "1.2.3");
	IS("10.1.1.1 7", "10.1.1.1", "01.2.3.4.5");
	IS("10.1.1.1 7", "10.1.1.1", "[::1");
	IS("10.1.1.1 7", "10.1.1.1", "[::1]x");
	IS("10.1.1.1 7", "10.1.1.1", "1.2.3.4 5.6.7.8");
	IS("10.0.0.9 0 said", "10.1.1.1", "1.2.3.4;, 10.0.0.9");
}

Test(peer, ports_and_brackets_are_understood)
{
	IS("1.2.3.4 80 said", "10.1.1.1", "1.2.3.4:80");
	IS("::1 0 said", "10.1.1.1", "[::1]");
	IS("::1 65535 said", "10.1.1.1", "[::1]:65535");
	IS("1.2.3.4 0 said", "10.1.1.1", "::ffff:1.2.3.4");
}

Test(peer, walk_is_bounded)
{
	char list[40 * 10] = "1.2.3.4";

	for (unsigned i = 0; i < 31; i++)
		strcat(list, ",10.0.0.1");
	IS("1.2.3.4 0 said", "10.1.1.1", list);
	strcat(list, ",10.0.0.1");
	IS("10.0.0.1 0 said", "10.1.1.1", list);
}

Test(peer, nobody_is_trusted_unless_the_gateway_says_so)
{
	struct manifest_gateway g = {.n_trusted = 0};
	struct http1_head head = {.n_headers = 1};
	struct peer p = of("unix");

	head.headers[0] =
		(struct http1_header){SLICE_LIT("X-Forwarded-For"), SLICE_LIT("1.2.3.4")};
	cr_assert_not(peer_forwarded(&g, &head, &p));
	cr_assert_eq(p.flags, PEER_UNIX);
	trust(&g, "0.0.0.0", 0);
	cr_assert_not(peer_forwarded(&g, &head, &p));
	p = of("8.8.8.8");
	cr_assert(peer_forwarded(&g, &head, &p));
}

Test(peer, socket_tells_its_other_end)
{
	int pair[2];
	struct peer p;

	cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	peer_of_socket(pair[0], &p);
	cr_assert(p.flags == PEER_UNIX && p.port == 0);
	close(pair[0]);
	close(pair[1]);
	peer_of_socket(-1, &p);
	cr_assert(p.flags == 0 && p.port == 0);
}
