/* actors/supervisor/supervisor.c -- bin/pointsman: starts all other processes and replaces them.
 *
 * Owns    listening sockets, segments, configuration snapshots, generations; identity, row
 *         generation and intent in the worker table; the roster.
 * Hears   SIGHUP reload, SIGTERM/SIGINT drain (twice: at once), control clients, its children.
 * Says    birth, segments, activate, open, drain (messages.def 40-58); reloaded to control clients.
 * Dies    the children serve on; a new one takes the run lock, ends them and starts afresh.
 *
 * Exit    0 ended as asked, 1 -n found errors or a start failed, 64 usage, 78 refused its
 *         configuration.
 */
#include "actors/supervisor/supervisor.h"

#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>
#include "actors/common/seed.h"
#include "shm/index.h"

#define MS 1000000ull
#define DEFAULT_CONFIG "/etc/pointsman"
#define DEFAULT_RUN_DIR "/run/pointsman"
#define BUSY_MS         20              /* while a switch, a restart or a drain is under way */
/* Files are written one after the other and signals come in bursts: one reload sees them all. */
#define HUP_SETTLE_NS   (25 * MS)
#define IDLE_MS         1000            /* heartbeat of our own segment */
/* Given to nobody: Debian hands out none there by itself, systemd's own begin at 61184. */
#define FIRST_UID       60800u
#define JOURNAL_BYTES   (64u << 10)
#define EXIT_USAGE      64
#define EXIT_REFUSED    78

static void
usage(FILE *to)
{
	fprintf(to, "usage: pointsman [-nv] [-c PATH]... [-r DIR] [--protect WHAT] [--uids FIRST]\n"
		    "                 [--seed SEED]\n"
		    "  -c PATH    a configuration file, or a directory of *.yaml "
		    "(default " DEFAULT_CONFIG ")\n"
		    "  -n         check the configuration, print every error, change nothing\n"
		    "  -r DIR     run directory: lock, sockets (default " DEFAULT_RUN_DIR ")\n"
		    "  -v         log debug lines too\n"
		    "  --protect WHAT  uids,rights (default), one of them, or none: user ids of "
		    "their own\n"
		    "             where started as root; rights that each process gives up\n"
		    "  --uids FIRST  user and group ids are this and a role's number "
		    "(default %u)\n"
		    "  --seed SEED  of the index's hashes: 16 hexadecimal digits, or a file that "
		    "has them;\n"
		    "             for replicas that share one (default: DIR/" PM_SEED_FILE ", made "
		    "at the first start)\n"
		    "  --help, --version\n"
		    "SIGHUP reloads, SIGUSR2 replaces the ingress processes, SIGTERM drains and "
		    "ends,\n"
		    "a second SIGTERM ends at once.\n",
		FIRST_UID);
}

static bool
protect_parse(struct options *o, const char *text)
{
	bool none = strcmp(text, "none") == 0, both = strcmp(text, "uids,rights") == 0;

	o->uids = both || strcmp(text, "uids") == 0;
	o->rights = both || strcmp(text, "rights") == 0;
	return none || o->uids || o->rights;
}

#define UIDS_LAST (UINT32_MAX - ROLE_COUNT - 1)          /* the last role's number is one too */

static bool
uids_parse(struct options *o, const char *text)
{
	char *end;
	unsigned long first = strtoul(text, &end, 10);

	o->first_uid = (uint32_t)first;
	return text[0] >= '0' && text[0] <= '9' && *end == 0 && first >= 1 &&
	       first <= UIDS_LAST;
}

/* -1: go on; else exit with that. */
static int
options_parse(struct options *o, int argc, char **argv)
{
	static const struct option names[] = {
		{"help", no_argument, NULL, 'h'}, {"version", no_argument, NULL, 'V'},
		{"protect", required_argument, NULL, 'p'}, {"uids", required_argument, NULL, 'u'},
		{"seed", required_argument, NULL, 's'}, {0}};
	static char default_path[] = DEFAULT_CONFIG;
	int c;

	*o = (struct options){.run_dir = DEFAULT_RUN_DIR, .level = LEVEL_INFO, .uids = true,
			      .rights = true, .first_uid = FIRST_UID};
	o->paths = calloc((size_t)argc + 1, sizeof *o->paths);
	if (!o->paths)
		return 1;
	while ((c = getopt_long(argc, argv, "c:nr:v", names, NULL)) != -1)
		switch (c) {
		case 'c': o->paths[o->n_paths++] = optarg; break;
		case 'n': o->check_only = true; break;
		case 'r': o->run_dir = optarg; break;
		case 'v': o->level = LEVEL_DEBUG; break;
		case 'p':
			if (protect_parse(o, optarg))
				break;
			fprintf(stderr, "pointsman: --protect \"%s\": must be uids,rights, uids, "
				"rights or none\n", optarg);
			return EXIT_USAGE;
		case 'u':
			if (uids_parse(o, optarg))
				break;
			fprintf(stderr, "pointsman: --uids \"%s\": must be a number from 1 to %u\n",
				optarg, UIDS_LAST);
			return EXIT_USAGE;
		case 's': o->seed = optarg; break;
		case 'h': usage(stdout); return 0;
		case 'V': printf("pointsman %s\n", PM_VERSION); return 0;
		default: usage(stderr); return EXIT_USAGE;
		}
	if (optind < argc) {
		fprintf(stderr, "pointsman: what is \"%s\"?\n", argv[optind]);
		usage(stderr);
		return EXIT_USAGE;
	}
	if (o->n_paths == 0)
		o->paths[o->n_paths++] = default_path;
	return -1;
}

/* Errors to standard error.  NULL: there were some. */
static struct manifest *
manifest_read(const struct options *o)
{
	struct yaml_errors errs = {0}, warnings = {0};
	struct secret_files *files = NULL;
	struct manifest *manifest = NULL;
	int r = manifest_load_paths(o->paths, o->n_paths, &manifest, &errs);

	if (r < 0 && errs.n == 0)
		fprintf(stderr, "pointsman: cannot load the configuration: %s\n", strerror(-r));
	if (r == 0) {
		r = secrets_read(manifest, &files, &errs, &warnings);
		if (r == -ENOMEM)
			fprintf(stderr, "pointsman: out of memory\n");
	}
	secrets_files_free(&files);
	yaml_errors_print(&errs, stderr);
	if (o->check_only)              /* else the log will have them, with the generation */
		yaml_errors_print(&warnings, stderr);
	yaml_errors_free(&errs);
	yaml_errors_free(&warnings);
	if (r < 0)
		manifest_free(&manifest);
	return manifest;
}

static int
check(const struct options *o)
{
	struct manifest *manifest = manifest_read(o);
	char text[240];

	if (!manifest)
		return 1;
	manifest_say(manifest, text, sizeof text);
	printf("configuration ok: %s\n", text);
	manifest_free(&manifest);
	return 0;
}

/* ---- open and close ---- */

static int
bin_dir(struct supervisor *s)
{
	ssize_t n = readlink("/proc/self/exe", s->bin_dir, sizeof s->bin_dir - 1);
	char *slash;

	if (n < 0)
		return -errno;
	s->bin_dir[n] = 0;
	slash = strrchr(s->bin_dir, '/');
	if (slash)
		*slash = 0;
	return 0;
}

/* All of the set is here: found out now, not by restarts for ever. */
static int
programs_check(const struct supervisor *s)
{
	static const enum process_role roles[] = {ROLE_INGRESS, ROLE_KVEVENTS, ROLE_METRICS,
						  ROLE_POLICY, ROLE_ADMIN, ROLE_MODELS};
	char path[320];

	for (unsigned i = 0; i < sizeof roles / sizeof roles[0]; i++) {
		snprintf(path, sizeof path, "%s/pointsman-%s", s->bin_dir,
			 process_role_name(roles[i]));
		if (access(path, X_OK) < 0) {
			log_error("program %s: %s", path, strerror(errno));
			return -ENOENT;
		}
	}
	return 0;
}

static int
signals_open(struct supervisor *s)
{
	static const int heard[] = {SIGHUP, SIGTERM, SIGINT, SIGCHLD, SIGUSR2};
	sigset_t set;

	sigemptyset(&set);
	for (unsigned i = 0; i < sizeof heard / sizeof heard[0]; i++)
		sigaddset(&set, heard[i]);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	s->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return s->signal_fd < 0 ? -errno : 0;
}

#define NICE_LIMIT 20                   /* background.h: back to a nice value of 0 */

/* Every process holds descriptors per connection or segment: as many as we may. */
static void
limits_raise(void)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur < r.rlim_max) {
		r.rlim_cur = r.rlim_max;
		setrlimit(RLIMIT_NOFILE, &r);
	}
	/* Without capabilities, this is what lets them come back from the background. */
	if (getrlimit(RLIMIT_NICE, &r) == 0 && r.rlim_cur < NICE_LIMIT) {
		r.rlim_cur = NICE_LIMIT;
		r.rlim_max = r.rlim_max < NICE_LIMIT ? NICE_LIMIT : r.rlim_max;
		setrlimit(RLIMIT_NICE, &r);
	}
}

#define FOUND_EXPECTED 64u              /* members of a set that finds them: nobody knows yet */

/* Index slot ids: six per row (two exact, two speculative, two demoted), and room for growth. */
static uint32_t
slots_wanted(const struct manifest *m)
{
	static const uint32_t sizes[] = {62, 254, 1022, 4094, 16382};
	uint32_t want = 6 * (m->n_members + m->n_members / 2 + 4);

	for (uint32_t i = 0; i < m->n_sets; i++)
		if (m->sets[i].discovery.source != MANIFEST_SOURCE_NONE)
			want += 6 * FOUND_EXPECTED;
	if (m->gateway.index_max_slots)
		return m->gateway.index_max_slots;
	for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
		if (want <= sizes[i])
			return sizes[i];
	return 65534;
}

/* An option and no field of the configuration: what the index holds was hashed with it from the
 * start to the end of a run. */
static int
seed_take(const struct supervisor *s, uint64_t *ret, const char **why)
{
	int r = s->options.seed ? pm_seed_given(s->options.seed, ret, why) :
				  pm_seed_keep(s->run_fd, ret, why);

	if (r > 0)
		log_info("hash seed: made, kept as %s/" PM_SEED_FILE, s->options.run_dir);
	return r < 0 ? r : 0;
}

static int
segments_open(struct supervisor *s, const struct manifest *manifest, uint64_t seed)
{
	int r;

	r = rows_create(&s->rows, ROWS_DEFAULT);
	if (r == 0)
		r = shares_add(s, &s->rows.seg, SEGMENT_ROWS, ROLE_SUPERVISOR, 0, 0, 0);
	if (r == 0)
		r = index_create(&s->index, manifest->gateway.index_blocks, slots_wanted(manifest),
				 seed);
	if (r == 0)
		r = shares_add(s, &s->index, SEGMENT_INDEX, ROLE_KVEVENTS, 0, 0, 0);
	if (r == 0)
		r = pins_create(&s->pins, manifest->gateway.limits.pinned_responses);
	if (r == 0)
		r = shares_add(s, &s->pins.seg, SEGMENT_PINS, ROLE_INGRESS, 0, 0, 0);
	if (r == 0)
		r = limits_create(&s->limits);
	if (r == 0)
		r = shares_add(s, &s->limits.seg, SEGMENT_LIMITS, ROLE_INGRESS, 0, 0, 0);
	if (r == 0)
		r = roster_create(&s->roster);
	if (r == 0)
		r = shares_add(s, &s->roster.seg, SEGMENT_ROSTER, ROLE_SUPERVISOR, 0, 0, 0);
	if (r == 0)
		r = process_create(&s->process, ROLE_SUPERVISOR, 0, 0, 0, JOURNAL_BYTES);
	if (r == 0)
		r = shares_add(s, &s->process.seg, SEGMENT_PROCESS, ROLE_SUPERVISOR, 0, 0, 0);
	if (r < 0)
		return r;
	segment_claim(&s->roster.seg);
	segment_claim(&s->process.seg);
	s->roster.head->born = clock_wall();

	struct roster_entry *e = &s->roster.entry[0];
	e->role = ROLE_SUPERVISOR;
	e->pid = (uint32_t)getpid();
	e->since_ns = clock_mono();
	atomic_store_explicit(&e->state, ROSTER_READY, memory_order_release);
	return 0;
}

/* Admin binds its port itself, and has no capabilities. */
static int
admin_port_check(const struct supervisor *s, const struct manifest *manifest, const char **why)
{
	unsigned free_from = 1024;
	FILE *f;

	if (geteuid() != 0 || (!s->uids && !s->options.rights))
		return 0;
	f = fopen("/proc/sys/net/ipv4/ip_unprivileged_port_start", "re");
	if (f && fscanf(f, "%u", &free_from) != 1)
		free_from = 1024;
	if (f)
		fclose(f);
	if (manifest->gateway.admin.port == 0 || manifest->gateway.admin.port >= free_from)
		return 0;
	*why = "GatewayBackend spec.admin.listen is a port that only root may bind, and "
	       "pointsman-admin has given that up: choose one from 1024 on";
	return -EACCES;
}

static int
secrets_make(struct supervisor *s)
{
	if (getrandom(s->key, sizeof s->key, 0) != (ssize_t)sizeof s->key ||
	    getrandom(&s->note, sizeof s->note, 0) != (ssize_t)sizeof s->note ||
	    getrandom(&s->look, sizeof s->look, 0) != (ssize_t)sizeof s->look)
		return -EIO;
	s->note |= 1;                   /* 0 is what those have who may not tell */
	return 0;
}

static int
supervisor_open(struct supervisor *s, const char **why)
{
	struct manifest *manifest = manifest_read(&s->options);
	uint64_t seed = 0;
	int r;

	*why = "its configuration has errors";
	if (!manifest)
		return -EINVAL;
	*why = "cannot set up signals";
	r = signals_open(s);
	limits_raise();
	if (r == 0 && (r = bin_dir(s)) < 0)
		*why = "cannot find its own program";
	if (r == 0 && (r = programs_check(s)) < 0)
		*why = "a program of the set is missing beside it";
	if (r == 0 && (r = secrets_make(s)) < 0)
		*why = "the kernel gives no random numbers";
	if (r == 0 && (r = discovery_new(&s->discovery)) < 0)
		*why = "cannot watch files and ask names";
	if (r == 0) {
		programs_uids(s);
		r = admin_port_check(s, manifest, why);
	}
	if (r == 0)
		r = rundir_open(s, why);
	if (r == 0)
		r = seed_take(s, &seed, why);
	if (r == 0 && (r = segments_open(s, manifest, seed)) < 0)
		*why = "cannot make shared memory";
	if (r == 0)
		r = orders_open(s, why);
	if (r == 0)
		r = listeners_open(s, manifest, why);
	if (r == 0)
		r = control_open(s, why);
	if (r == 0) {
		generation_event(s, &(struct reload_event){.type = RELOAD_WANTED});
		*why = "its configuration has errors";
		r = generation_shown(s) ? 0 : -EINVAL;
	}
	if (r == 0)
		seats_make(s, manifest);
	manifest_free(&manifest);
	return r;
}

static void
supervisor_close(struct supervisor *s)
{
	for (unsigned i = 0; i < CHILDREN_MAX; i++)     /* a start that failed half-way */
		if (s->child[i])
			child_kill(s->child[i], "belongs to a start that failed");
	for (unsigned n = 0; n < 100; n++) {
		bool some = false;

		children_reap(s);
		for (unsigned i = 0; i < CHILDREN_MAX; i++)
			some |= s->child[i] != NULL;
		if (!some)
			break;
		poll(NULL, 0, 10);
	}
	control_close(s);
	listeners_close(s);
	models_close(s);
	generation_close(s);
	past_close(s);
	discovery_free(&s->discovery);
	for (unsigned i = s->n_shares; i-- > 0;)
		close(s->share[i].ro_fd);
	s->n_shares = 0;
	process_detach(&s->process);
	roster_detach(&s->roster);
	limits_detach(&s->limits);
	pins_detach(&s->pins);
	segment_detach(&s->index);
	rows_detach(&s->rows);
	free(s->seat);
	rundir_close(s);
	if (s->signal_fd >= 0)
		close(s->signal_fd);
	free(s->options.paths);
}

/* ---- the loop ---- */

/* Another load than the one that waits has its turn after that. */
static void
on_hup(struct supervisor *s)
{
	char text[512];

	if (s->reload.pending && s->back)
		s->hup_due_ns = clock_mono() + HUP_SETTLE_NS;
	else
		generation_want(s, false, 0, text, sizeof text);
}

static void
on_signals(struct supervisor *s)
{
	struct signalfd_siginfo info;

	while (read(s->signal_fd, &info, sizeof info) == (ssize_t)sizeof info)
		switch (info.ssi_signo) {
		case SIGCHLD:
			break;          /* every turn reaps */
		case SIGHUP:
			log_info("reload: asked for by SIGHUP");
			if (!s->hup_due_ns)
				s->hup_due_ns = clock_mono() + HUP_SETTLE_NS;
			break;
		case SIGUSR2:
			log_info("replace: asked for by SIGUSR2");
			if (!s->draining)
				seats_replace(s);
			break;
		default:
			if (s->draining)
				supervisor_stop_hard(s);
			else
				supervisor_stop(s, 0);
		}
}

enum { POLL_SIGNAL, POLL_CONTROL, POLL_DISCOVERY, POLL_MODELS, POLL_CLIENTS,
	POLL_CHILDREN = POLL_CLIENTS + CONTROL_CLIENTS,
	POLL_MAX = POLL_CHILDREN + CHILDREN_MAX };

static int
turn_ms(const struct supervisor *s, mono_ns now)
{
	mono_ns next = children_next(s), found = members_next(s);

	if (found && next != 1 && (!next || found < next))
		next = found;
	if (s->hup_due_ns && (!next || s->hup_due_ns < next))
		next = s->hup_due_ns;
	if (s->draining || reload_busy(&s->reload) || next == 1)
		return BUSY_MS;
	if (next <= now)
		return next ? 0 : IDLE_MS;
	return (next - now) / MS + 1 < IDLE_MS ? (int)((next - now) / MS + 1) : IDLE_MS;
}

/* READY means that every seat is taken by a process that serves: an ingress accepts, because it has
 * somebody to ask. */
static void
tell_manager(struct supervisor *s)
{
	bool all = s->reload.serving > 0 && reload_all_ask(&s->reload);

	for (unsigned i = 0; i < CHILDREN_MAX; i++)
		all = all && (!s->child[i] || s->child[i]->state >= ROSTER_READY);
	if (s->draining)
		notify_state(&s->notify, NOTIFY_STOPPING, 0);
	else if (s->notify.said == NOTIFY_NOTHING ? all : !reload_busy(&s->reload))
		notify_state(&s->notify, NOTIFY_READY, s->reload.serving);
	else if (s->notify.said == NOTIFY_READY)
		notify_state(&s->notify, NOTIFY_RELOADING, 0);
}

static void
turn(struct supervisor *s)
{
	struct pollfd pfd[POLL_MAX];
	uint32_t who[CHILDREN_MAX] = {0};
	mono_ns now;

	pfd[POLL_SIGNAL] = (struct pollfd){.fd = s->signal_fd, .events = POLLIN};
	pfd[POLL_CONTROL] = (struct pollfd){.fd = s->control_fd, .events = POLLIN};
	pfd[POLL_DISCOVERY] =
		(struct pollfd){.fd = discovery_fd(s->discovery), .events = POLLIN};
	pfd[POLL_MODELS] = (struct pollfd){
		.fd = s->models.left > 0 ? s->models.sock : -1, .events = POLLIN};
	for (unsigned i = 0; i < CONTROL_CLIENTS; i++)
		pfd[POLL_CLIENTS + i] = (struct pollfd){.fd = s->client[i].fd,
			.events = (short)(POLLIN | (s->client[i].out.n ? POLLOUT : 0))};
	for (unsigned i = 0; i < CHILDREN_MAX; i++) {
		const struct child *c = s->child[i];

		who[i] = c ? c->incarnation : 0;
		pfd[POLL_CHILDREN + i] = (struct pollfd){.fd = c ? c->sock : -1,
			.events = (short)(POLLIN | (c && c->out.n ? POLLOUT : 0))};
		/* Closed by the child, which is not reaped yet: the poll would not wait. */
		if (c && c->closed_ns)
			pfd[POLL_CHILDREN + i].fd = -1;
	}
	if (poll(pfd, POLL_MAX, turn_ms(s, clock_mono())) < 0 && errno != EINTR)
		log_fatal("poll: %s", strerror(errno));
	if (pfd[POLL_SIGNAL].revents)
		on_signals(s);
	children_reap(s);
	for (unsigned i = 0; i < CHILDREN_MAX; i++) {
		struct child *c = child_find(s, who[i]);

		if (c && pfd[POLL_CHILDREN + i].revents & POLLOUT)
			outbox_flush(&c->out, c->sock);
		if (c && pfd[POLL_CHILDREN + i].revents & (POLLIN | POLLHUP | POLLERR))
			child_read(s, c);
	}
	for (unsigned i = 0; i < CONTROL_CLIENTS; i++) {
		if (pfd[POLL_CLIENTS + i].revents & POLLOUT && s->client[i].fd >= 0)
			outbox_flush(&s->client[i].out, s->client[i].fd);
		if (pfd[POLL_CLIENTS + i].revents & (POLLIN | POLLHUP | POLLERR) &&
		    s->client[i].fd >= 0)
			control_read(s, &s->client[i]);
	}
	if (pfd[POLL_CONTROL].revents)
		control_accept(s);

	now = clock_mono();
	if ((pfd[POLL_MODELS].revents && models_hear(s)) || models_tick(s, now))
		generation_models(s);
	if (s->hup_due_ns && now >= s->hup_due_ns) {
		s->hup_due_ns = 0;
		on_hup(s);
	}
	generation_event(s, &(struct reload_event){.type = RELOAD_TICK});
	children_tick(s, now);
	members_tick(s, now);
	fleet_tick(s, now);
	tell_manager(s);
	atomic_store_explicit(&s->process.seg.head->heartbeat_ns, now, memory_order_relaxed);
}

int
main(int argc, char **argv)
{
	static struct supervisor state;         /* too large for the stack */
	struct supervisor *s = &state;
	const char *why = "";
	int r;

	*s = (struct supervisor){.lock_fd = -1, .run_fd = -1, .signal_fd = -1, .control_fd = -1};
	s->rows.seg.fd = s->index.fd = s->roster.seg.fd = s->process.seg.fd = -1;
	s->pins.seg.fd = s->limits.seg.fd = -1;
	for (unsigned i = 0; i < CONFIGS_MAX; i++)
		s->config[i] = (struct config){
			.seg.fd = -1, .secrets.fd = -1, .trust.fd = -1, .probes.fd = -1};
	s->models.sock = s->models.pidfd = -1;
	for (unsigned i = 0; i < CONTROL_CLIENTS; i++)
		s->client[i].fd = -1;
	reload_init(&s->reload);
	notify_open(&s->notify);
	r = options_parse(&s->options, argc, argv);
	if (r < 0 && s->options.check_only)
		r = check(&s->options);
	if (r >= 0) {
		free(s->options.paths);
		return r;
	}
	log_open("supervisor", 0, 0, 0, s->options.level);
	r = supervisor_open(s, &why);
	if (r < 0) {
		log_error("start run_dir=%s: failed, because %s: %s", s->options.run_dir, why,
			  strerror(-r));
		s->draining = true;
		supervisor_close(s);
		return r == -EINVAL ? EXIT_REFUSED : 1;
	}
	log_info("supervisor pid=%d run_dir=%s: starting", (int)getpid(), s->options.run_dir);
	children_tick(s, clock_mono());         /* the first births */
	while (!s->draining || !supervisor_drained(s, clock_mono()))
		turn(s);
	r = s->exit_code;
	log_info("supervisor: draining -> ended, exit %d", r);
	supervisor_close(s);
	return r;
}
