/* policy.c -- decides where each request goes; a new set of rules is a new process.
 *
 * Owns    its own process segment (heartbeat, panic text, counters, decision records), which no
 *         decision reads; all else it maps read-only.
 * Hears   ask cancel probe  ingress     questions; their end; is anybody there
 *         resent            ingress     my part of the switch is done
 *         segment gone      supervisor  an ingress incarnation came, or members; is dead
 *         open drain        supervisor  every ingress asks you now; end
 * Says    hello probed      ingress     first on each connection; I am
 *         answer cancelled  ingress     a decision with all its effects; nobody reads those bytes
 *         ready failed bye  supervisor
 * Dies    ingress sees it by pidfd and asks the standby or successor: an unanswered question has
 *         had no effect.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "actors/policy/policy.h"
#include "actors/policy/tagging.h"

#define TICK_MS 50u                     /* scrapes are seen within this: view.h VIEW_SIGHT_NS */

/* ---- hearing the supervisor, and the world's other events ---- */

/* Other members were found for the documents it was born with.  Takes fd. */
static void
on_documents(struct policy *me, int fd)
{
	struct yaml_errors errs = {0};
	struct manifest *is = NULL, *was = me->manifest;
	uint32_t generation = 0;
	int r = config_load(fd, &is, &generation, &errs);

	yaml_errors_free(&errs);
	if (r == 0 && generation != me->actor->birth.generation)
		r = -EPROTO;
	if (r == 0)
		r = evaluate_documents(me->evaluate, is);
	if (r < 0) {
		log_error("found members not taken over: %s; those before stay", strerror(-r));
		manifest_free(&is);
		return;
	}
	me->manifest = is;
	log_info("members=%u revision=%u config=%016llx", is->n_members, is->revision,
		 (unsigned long long)is->hash);
	manifest_free(&was);
}

static void
policy_on_message(void *priv, const struct msg *m, int fd)
{
	struct policy *me = priv;

	switch (m->id) {
	case MSG_segment:
		if (fd >= 0 && peers_segment_is((enum segment_kind)m->u.segment.kind)) {
			peers_segment(me, (enum segment_kind)m->u.segment.kind, m->u.segment.index,
				     m->u.segment.incarnation, fd);
			fd = -1;
		} else if (fd >= 0 && m->u.segment.kind == SEGMENT_CONFIG) {
			on_documents(me, fd);
			fd = -1;
		}
		break;
	case MSG_gone:
		if (m->u.gone.role == ROLE_INGRESS) {
			peers_gone(me, m->u.gone.incarnation);
			policy_open_if_complete(me);
		}
		break;
	case MSG_open:
		if (m->u.open.policy_gen == me->actor->birth.generation) {
			me->opened = true;
			policy_open_if_complete(me);
		}
		break;
	case MSG_rows_changed:
		view_refresh(&me->view);
		break;
	default:
		break;
	}
	if (fd >= 0)
		close(fd);
}

static void
on_tokens(struct pm_actor *actor, void *arg)
{
	struct policy *me = arg;
	struct token_key key;
	const char *why;

	(void)actor;
	while (tokensource_collect(me->tokens, clock_mono(), &key, &why) > 0) {
		if (why) {
			count_add(process_of(me), COUNTER_tokenize_failures, 1);
			log_debug("tokenize failed: %s; decided without a prefix", why);
		}
		policy_decide_waiting(me, &key, why != NULL);
	}
}

static void
on_classified(struct pm_actor *actor, void *arg)
{
	struct policy *me = arg;
	struct token_key key;

	(void)actor;
	while (tagging_collect(evaluate_tagging(me->evaluate), clock_mono(), &key))
		policy_decide_waiting(me, &key, false);
}

static void
on_aside(struct pm_actor *actor, void *arg)
{
	struct policy *me = arg;
	struct token_key key;
	bool dropped;

	(void)actor;
	while (aside_collect(me->aside, &key, &dropped))
		policy_decide_waiting(me, &key, false);
	policy_aside_used(me);
}

static void
policy_on_tick(void *priv, mono_ns now)
{
	struct policy *me = priv;
	struct token_key key;

	view_tick(&me->view, now);
	while (me->aside && aside_late(me->aside, now, &key))
		policy_decide_waiting(me, &key, true);
}

/* Everybody who asked us asks somebody else by now, or is ending too.  What is owed is said. */
static void
policy_on_drain(void *priv, mono_ns deadline)
{
	struct policy *me = priv;

	(void)deadline;
	peers_drain(me);
	if (me->aside)
		aside_end(me->aside);   /* nobody reads a body that is answered for */
	policy_answer_all(me);
	pm_actor_stop(me->actor, 0);
}

/* ---- birth and end ---- */

static int
open_view(struct policy *me)
{
	struct birth *b = &me->actor->birth;
	struct rows rows = {0};
	struct index *index = NULL;
	int fd, r;

	r = pm_attach_rows(me->actor, &rows, false);
	if (r < 0)
		return r;
	fd = birth_segment_fd(b, SEGMENT_INDEX, ROLE_NONE, 0, NULL);
	r = fd < 0 ? fd : index_attach(&index, fd);
	if (r == 0)
		r = view_open(&me->view, me->manifest, b->incarnation, &rows, &index);
	if (r < 0) {
		rows_detach(&rows);
		if (index)
			index_detach(&index);
		return pm_open_failed(me->actor, "prefix index", r);
	}
	fd = birth_segment_fd(b, SEGMENT_PINS, ROLE_NONE, 0, NULL);
	r = fd < 0 ? fd : pins_attach(&me->view.pins, fd, false);
	if (r < 0)
		return pm_open_failed(me->actor, "table of responses", r);
	for (unsigned i = 0; i < b->n_segments; i++) {
		struct birth_segment *s = &b->segment[i];

		if (s->fd < 0 || !peers_segment_is(s->kind))
			continue;
		fd = s->fd;
		s->fd = -1;
		r = peers_segment(me, s->kind, s->index, s->incarnation, fd);
		if (r < 0)
			return pm_open_failed(me->actor, "segments of an ingress", r);
	}
	return 0;
}

/* Models of the sets that have a tokenizer, and what makes ids by them. */
static int
open_models(struct policy *me)
{
	const struct manifest *m = me->manifest;
	struct birth *b = &me->actor->birth;
	bool some = false;
	int r;

	for (uint32_t i = 0; i < m->n_sets; i++)
		some |= m->sets[i].tokenizer.path[0] != 0;
	if (!some)
		return 0;
	r = native_new(&me->native, m->n_sets);
	for (unsigned i = 0; i < b->n_segments && r == 0; i++) {
		struct birth_segment *s = &b->segment[i];

		if (s->fd < 0 || s->kind != SEGMENT_MODEL || s->index >= m->n_sets)
			continue;
		r = native_take(me->native, s->index, s->fd);
		s->fd = -1;
	}
	for (uint32_t i = 0; i < m->n_sets && r == 0; i++)
		if (native_why(me->native, i))
			log_warn("tokens set=%s: not made here: %s", m->sets[i].name,
				 native_why(me->native, i));
	return r < 0 ? pm_open_failed(me->actor, "models", r) : 0;
}

/* What reads large bodies, where anybody wants more of them than their view. */
static int
open_aside(struct policy *me)
{
	struct tagging *tagging = evaluate_tagging(me->evaluate);
	int r;

	if (!me->native && !tagging_reads_texts(tagging))
		return 0;
	r = aside_new(&me->aside, me->native, view_ingress_free);
	if (r == 0 && tagging_reads_texts(tagging))
		r = aside_tagging(me->aside, tagging_tags(tagging));
	return r < 0 ? pm_open_failed(me->actor, "threads for large bodies", r) : 0;
}

static void
policy_close(void **priv)
{
	struct policy *me = *priv;

	if (!me)
		return;
	*priv = NULL;
	peers_remove_all(me);
	waiting_free(&me->waiting);
	held_free(&me->held);
	if (me->tokens) {
		pm_actor_unwatch_socket(me->actor, tokensource_socket(me->tokens));
		tokensource_free(&me->tokens);
	}
	for (unsigned i = 0; me->aside && i < ASIDE_THREADS; i++)
		pm_actor_unwatch_socket(me->actor, aside_socket(me->aside, i));
	aside_free(&me->aside);         /* its threads read by the evaluator's tags */
	if (me->evaluate && tagging_socket(evaluate_tagging(me->evaluate)))
		pm_actor_unwatch_socket(me->actor,
					tagging_socket(evaluate_tagging(me->evaluate)));
	evaluate_free(&me->evaluate);
	native_free(&me->native);
	if (me->view.manifest)
		view_close(&me->view);
	manifest_free(&me->manifest);
	secrets_detach(&me->trust);
	if (me->timer_fd >= 0)
		close(me->timer_fd);
	if (me->greet_fd >= 0)
		close(me->greet_fd);
	if (me->held_fd >= 0)
		close(me->held_fd);
	free(me->frame);
	free(me);
}

static int
policy_open(struct pm_actor *actor, void **ret)
{
	struct policy *me = calloc(1, sizeof *me);
	const char *why = "";
	int r;

	if (!me)
		return -ENOMEM;
	me->magic = POLICY_MAGIC;
	me->actor = actor;
	me->trust.seg.fd = -1;
	*ret = me;
	me->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	me->greet_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	me->held_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	me->frame = malloc(MESSAGE_MAX);
	if (me->timer_fd < 0 || me->greet_fd < 0 || me->held_fd < 0 || !me->frame)
		return pm_open_failed(me->actor, "memory and a timer", -ENOMEM);
	r = pm_attach_config(actor, &me->manifest);
	if (r == 0)
		r = pm_attach_trust(actor, SEGMENT_TRUST, &me->trust);
	if (r < 0)
		return r;
	r = open_view(me);
	if (r < 0)
		return r;
	me->view.trust = &me->trust;
	r = tokensource_new(&me->tokens);
	if (r < 0)
		return pm_open_failed(me->actor, "token source", r);
	r = open_models(me);
	if (r < 0)
		return r;
	r = evaluate_new(&me->evaluate, &me->view, me->tokens, &actor->process,
			 actor->birth.generation);
	if (r < 0)
		return pm_open_failed(me->actor, "evaluator", r);
	r = evaluate_self_test(me->evaluate, &why);
	if (r < 0)
		return pm_open_failed(me->actor, why, r);
	r = open_aside(me);
	if (r < 0)
		return r;
	evaluate_natively(me->evaluate, me->native, me->aside);
	if (tagging_socket(evaluate_tagging(me->evaluate)))
		pm_actor_watch_socket(actor, tagging_socket(evaluate_tagging(me->evaluate)),
				      on_classified, me);
	for (unsigned i = 0; me->aside && i < ASIDE_THREADS; i++)
		pm_actor_watch_socket(actor, aside_socket(me->aside, i), on_aside, me);
	pm_actor_watch_socket(actor, tokensource_socket(me->tokens), on_tokens, me);
	pm_actor_watch_fd(actor, me->timer_fd, policy_on_open_late, me);
	pm_actor_watch_fd(actor, me->greet_fd, peers_on_greet_timer, me);
	pm_actor_watch_fd(actor, me->held_fd, policy_on_held, me);
	log_info("loaded config=%016llx models=%u members=%u ingresses=%u",
		 (unsigned long long)me->manifest->hash, me->manifest->n_models,
		 me->manifest->n_members, me->n_peers);
	return 0;
}

static const struct pm_actor_spec spec = {
	.name = "policy",
	.tick_ms = TICK_MS,
	.open = policy_open,
	.close = policy_close,
	.on_message = policy_on_message,
	.on_tick = policy_on_tick,
	.on_drain = policy_on_drain,
};

int
main(int argc, char **argv)
{
	return pm_actor_main(argc, argv, &spec);
}
