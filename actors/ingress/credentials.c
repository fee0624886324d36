/* actors/ingress/credentials.c -- see credentials.h. */
#include "actors/ingress/credentials.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert(TLS_WHY_MAX >= TENANTS_WHY_MAX, "one place for both");
_Static_assert(SECRETS_TICKET_KEY == TLS_TICKET_KEY, "the supervisor makes what OpenSSL takes");

static int
tls_of(struct credentials *c, const struct manifest *m, char why[TLS_WHY_MAX])
{
	const struct manifest_gateway *gw = &m->gateway;
	struct tls_certificate *certificate = calloc(gw->n_certificates + 1, sizeof *certificate);
	struct tls_trust *trust = calloc(m->n_sets + 1, sizeof *trust);
	struct slice ticket = secrets_get(&c->secrets, SECRET_TICKET, 0);
	struct tls_source from = {.certificate = certificate, .n_certificates = gw->n_certificates,
				  .trust = trust, .n_trusts = m->n_sets};
	int r = certificate && trust ? 0 : -ENOMEM;

	for (uint32_t i = 0; r == 0 && i < gw->n_certificates; i++)
		certificate[i] = (struct tls_certificate){
			.file = gw->certificates[i].certificate,
			.chain = secrets_get(&c->secrets, SECRET_CHAIN, i),
			.key = secrets_get(&c->secrets, SECRET_KEY, i)};
	for (uint32_t i = 0; r == 0 && i < m->n_sets; i++)
		trust[i] = (struct tls_trust){.used = m->sets[i].https,
					      .server_name = m->sets[i].tls_server_name,
					      .ca = secrets_get(&c->secrets, SECRET_CA, i)};
	for (uint32_t i = 0; r == 0 && i < m->n_sets; i++)
		if (m->sets[i].tls_ca[0] && trust[i].ca.len == 0) {
			snprintf(why, TLS_WHY_MAX, "the CA of a worker set did not come");
			r = -EBADMSG;   /* never the system's instead */
		}
	if (ticket.len == TLS_TICKET_KEY)
		from.ticket_key = (const uint8_t *)ticket.p;
	if (r == 0)
		r = tls_new(&c->tls, &from, why);
	free(certificate);
	free(trust);
	return r;
}

static struct slice
text_of(void *arg, uint32_t issuer, bool secret)
{
	const struct credentials *c = arg;
	struct slice text = secrets_get(&c->secrets, secret ? SECRET_JWT : SECRET_JWKS, issuer);

	return text.len > 0 ? text : (struct slice){NULL, 0};
}

int
credentials_load(struct credentials **ret, const struct manifest *manifest, int fd,
		 uint32_t generation, char why[TLS_WHY_MAX])
{
	struct credentials *c = calloc(1, sizeof *c);
	uint32_t got = generation;
	int r = 0;

	snprintf(why, TLS_WHY_MAX, "out of memory");
	if (!c || !(c->set = calloc(manifest->n_sets + 1, sizeof *c->set))) {
		if (fd >= 0)
			close(fd);
		free(c);
		return -ENOMEM;
	}
	c->secrets.seg.fd = -1;
	if (fd >= 0)
		r = secrets_attach(&c->secrets, fd, SEGMENT_SECRETS, &got);
	if (r == 0 && got != generation)
		r = -ESTALE;
	if (r < 0)
		snprintf(why, TLS_WHY_MAX, "the segment of keys: %s", strerror(-r));
	if (r == 0)
		r = tls_of(c, manifest, why);
	if (r == 0)
		r = tenants_new(&c->tenants, manifest, text_of, c, why);
	if (r < 0) {
		credentials_free(&c);
		return r;
	}
	c->n_sets = manifest->n_sets;
	for (uint32_t i = 0; i < c->n_sets; i++) {
		memcpy(c->set[i].name, manifest->sets[i].name, sizeof c->set[i].name);
		c->set[i].api_key = secrets_get(&c->secrets, SECRET_API_KEY, i);
	}
	*ret = c;
	return 0;
}

void
credentials_free(struct credentials **ret)
{
	struct credentials *c = *ret;

	if (!c)
		return;
	*ret = NULL;
	tls_drop(&c->tls);
	tenants_free(&c->tenants);
	secrets_detach(&c->secrets);
	free(c->set);
	free(c);
}

uint32_t
credentials_set(const struct credentials *c, const char *name)
{
	for (uint32_t i = 0; c && i < c->n_sets; i++)
		if (strcmp(c->set[i].name, name) == 0)
			return i;
	return CREDENTIALS_NO_SET;
}
