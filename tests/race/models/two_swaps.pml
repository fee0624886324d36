/* two_swaps.pml -- reloads in a row, with deaths in between, roll back and a HUP in probation.
 *
 * Stands for  the supervisor's state machine itself, which is compiled in:
 * code        actors/supervisor/reload.c
 * code        actors/supervisor/reload.h
 * code        tests/race/models/two_swaps_world.c
 *             and, written here, what surrounds it: children.c (bury tells `gone`, then the machine;
 *             a death is reaped before a word of an ingress is heard), generation.c (LOAD is answered
 *             after the actions of its step), actors/ingress/ask.c (ask_activate, ask_standby,
 *             ask_gone).  What answers and requests do meanwhile: swap.pml.
 * Scale       two ingresses, one process that stands by, PROCS policy processes in all, HUPS reloads
 *             (the first start besides), KILLS deaths of policy processes, IKILLS of ingresses (each
 *             has a successor), FAILS configurations refused by their process.
 * Time        messages to and from each ingress keep their order and are heard at any moment, a death
 *             is seen by pidfd at any moment.  Time passes when nothing else can happen, and EARLY
 *             times before: then deadlines end while words are under way.  Stored times are kept as
 *             ages, so that states meet again.
 * Rules       open_alone    OPEN: no live ingress asks, or applies answers of, another process
 *             once_opened   a process once opened is activated again only for a new ingress, never
 *                           where its stream was closed
 *             drain_unasked DRAIN: no live ingress asks that process
 *             two_deaths    roll back only after two deaths of asked processes of the generation
 *             all_well      in the end: idle, every ingress asks the opened process of the generation in
 *                           force, one stands by and all ingresses know it, each reload was answered
 * Switches    FASTREACH     an ingress reaches a process at once when both are ready
 *             NOREAP        an ingress's word is heard before the death that caused it: holds too
 *             GONELAST      the machine hears of a death before the ingresses are told: holds too
 *             mutate        a line of reload.c is changed
 *
 * run small holds -DINS=1 -DFASTREACH -DKILLS=1       # 20,331 states
 * run small holds -DINS=1 -DFASTREACH -DHUPS=2 -DKILLS=0# 5,789 states
 * run small holds -DFASTREACH -DKILLS=0               # 10,473 states
 * run small holds -DFASTREACH -DKILLS=0 -DFAILS=1     # 22,357 states
 * run small breaks open_alone -DFASTREACH -DKILLS=0 mutate reload.c "s/return false;   \/\* a killed/continue; \/* a killed/"
 * run small breaks open_alone -DFASTREACH -DKILLS=0 -DIKILLS=1 mutate reload.c "s/ \|\| in->ready_ns <= m->want_ns//"
 * run small breaks once_opened -DINS=1 -DFASTREACH -DKILLS=2 mutate reload.c "s/p->draining \|\| p->opened \|\|/p->draining ||/" reload.c "s/ \|\| \(p->asked && m->rolling_back\)//"
 * run small breaks drain_unasked -DFASTREACH mutate reload.c "s/if \(!m->settled \|\| !want/if (!want/"
 * run small breaks two_deaths -DFASTREACH -DKILLS=1 mutate reload.c "s/m->deaths >= 2/m->deaths >= 1/"
 * run small breaks all_well -DINS=1 -DFASTREACH -DKILLS=1 mutate reload.c "s/if \(was_asked\)\s+want_none\(m\);//"
 * run all holds -DFASTREACH -DKILLS=0 -DIKILLS=1       # 154,181 states
 * run all holds -DKILLS=0                              # 65,833 states
 * run all holds -DFASTREACH -DKILLS=1                  # 3,207,837 states
 * run all holds -DFASTREACH -DKILLS=1 -DNOREAP         # 3,963,897 states
 * run all holds -DFASTREACH -DHUPS=2 -DKILLS=0         # 1,347,505 states
 * run all holds -DINS=1 -DFASTREACH -DKILLS=2          # 745,144 states
 * run all holds -DINS=1 -DFASTREACH -DHUPS=2 -DKILLS=1 # 719,401 states
 */
#define RULE(cond, name) assert((cond) || name)
hidden byte open_alone, once_opened, drain_unasked, two_deaths, all_well;

c_decl {
\#include "tests/race/models/two_swaps_world.c"
}
c_track "&m" "sizeof(struct reload)"
c_track "&w" "sizeof(struct world)"
byte broken;			/* the rule that was violated, as in the enum above */

init
{
	bool more = true;

	c_code { start() ; }
	do
	:: more ->
		atomic {
			if
			:: c_expr { (may_happen(0)) } -> c_code { happens(0); now.broken = bad; }
			:: c_expr { (may_happen(1)) } -> c_code { happens(1); now.broken = bad; }
			:: c_expr { (may_happen(2)) } -> c_code { happens(2); now.broken = bad; }
			:: c_expr { (may_happen(3)) } -> c_code { happens(3); now.broken = bad; }
			:: c_expr { (may_happen(4)) } -> c_code { happens(4); now.broken = bad; }
			:: c_expr { (may_happen(5)) } -> c_code { happens(5); now.broken = bad; }
			:: c_expr { (may_happen(6)) } -> c_code { happens(6); now.broken = bad; }
			:: c_expr { (may_happen(7)) } -> c_code { happens(7); now.broken = bad; }
			:: c_expr { (may_happen(8)) } -> c_code { happens(8); now.broken = bad; }
			:: c_expr { (may_happen(9)) } -> c_code { happens(9); now.broken = bad; }
			:: c_expr { (may_happen(10)) } -> c_code { happens(10); now.broken = bad; }
			:: c_expr { (may_happen(11)) } -> c_code { happens(11); now.broken = bad; }
			:: c_expr { (may_happen(12)) } -> c_code { happens(12); now.broken = bad; }
			:: c_expr { (may_happen(16)) } -> c_code { happens(16); now.broken = bad; }
			:: c_expr { (may_happen(17)) } -> c_code { happens(17); now.broken = bad; }
			:: c_expr { (may_happen(18)) } -> c_code { happens(18); now.broken = bad; }
			:: c_expr { (may_happen(19)) } -> c_code { happens(19); now.broken = bad; }
			:: c_expr { (may_happen(20)) } -> c_code { happens(20); now.broken = bad; }
			:: c_expr { (may_happen(21)) } -> c_code { happens(21); now.broken = bad; }
			:: c_expr { (may_happen(22)) } -> c_code { happens(22); now.broken = bad; }
			:: c_expr { (may_happen(23)) } -> c_code { happens(23); now.broken = bad; }
			:: c_expr { (may_happen(24)) } -> c_code { happens(24); now.broken = bad; }
			:: c_expr { (may_happen(25)) } -> c_code { happens(25); now.broken = bad; }
			:: c_expr { (may_happen(26)) } -> c_code { happens(26); now.broken = bad; }
			:: c_expr { (may_happen(27)) } -> c_code { happens(27); now.broken = bad; }
			:: c_expr { (may_happen(28)) } -> c_code { happens(28); now.broken = bad; }
			:: c_expr { (may_happen(29)) } -> c_code { happens(29); now.broken = bad; }
			:: c_expr { (may_happen(30)) } -> c_code { happens(30); now.broken = bad; }
			:: c_expr { (may_happen(31)) } -> c_code { happens(31); now.broken = bad; }
			:: c_expr { (may_happen(32)) } -> c_code { happens(32); now.broken = bad; }
			:: c_expr { (may_happen(33)) } -> c_code { happens(33); now.broken = bad; }
			:: c_expr { (may_happen(34)) } -> c_code { happens(34); now.broken = bad; }
			:: c_expr { (may_happen(35)) } -> c_code { happens(35); now.broken = bad; }
			:: c_expr { (may_happen(36)) } -> c_code { happens(36); now.broken = bad; }
			:: c_expr { (may_happen(37)) } -> c_code { happens(37); now.broken = bad; }
			:: c_expr { (may_happen(38)) } -> c_code { happens(38); now.broken = bad; }
			:: c_expr { (may_happen(39)) } -> c_code { happens(39); now.broken = bad; }
			:: c_expr { (may_happen(40)) } -> c_code { happens(40); now.broken = bad; }
			:: c_expr { (may_happen(41)) } -> c_code { happens(41); now.broken = bad; }
			:: c_expr { (may_happen(42)) } -> c_code { happens(42); now.broken = bad; }
			:: c_expr { (may_happen(43)) } -> c_code { happens(43); now.broken = bad; }
			:: c_expr { (may_happen(44)) } -> c_code { happens(44); now.broken = bad; }
			:: c_expr { (may_happen(45)) } -> c_code { happens(45); now.broken = bad; }
			:: c_expr { (may_happen(46)) } -> c_code { happens(46); now.broken = bad; }
			:: c_expr { (may_happen(47)) } -> c_code { happens(47); now.broken = bad; }
			:: c_expr { (may_happen(48)) } -> c_code { happens(48); now.broken = bad; }
			:: c_expr { (may_happen(49)) } -> c_code { happens(49); now.broken = bad; }
			:: c_expr { (may_happen(50)) } -> c_code { happens(50); now.broken = bad; }
			:: c_expr { (may_happen(51)) } -> c_code { happens(51); now.broken = bad; }
			:: c_expr { (may_happen(52)) } -> c_code { happens(52); now.broken = bad; }
			:: c_expr { (may_happen(53)) } -> c_code { happens(53); now.broken = bad; }
			:: c_expr { (may_happen(54)) } -> c_code { happens(54); now.broken = bad; }
			:: c_expr { (may_happen(55)) } -> c_code { happens(55); now.broken = bad; }
			:: c_expr { (may_happen(56)) } -> c_code { happens(56); now.broken = bad; }
			:: c_expr { (may_happen(57)) } -> c_code { happens(57); now.broken = bad; }
			:: c_expr { (may_happen(58)) } -> c_code { happens(58); now.broken = bad; }
			:: c_expr { (may_happen(59)) } -> c_code { happens(59); now.broken = bad; }
			:: c_expr { (may_happen(60)) } -> c_code { happens(60); now.broken = bad; }
			:: c_expr { (may_happen(61)) } -> c_code { happens(61); now.broken = bad; }
			:: c_expr { (may_happen(62)) } -> c_code { happens(62); now.broken = bad; }
			:: c_expr { (may_happen(63)) } -> c_code { happens(63); now.broken = bad; }
			:: c_expr { (may_happen(64)) } -> c_code { happens(64); now.broken = bad; }
			:: c_expr { (may_happen(65)) } -> c_code { happens(65); now.broken = bad; }
			:: c_expr { (may_happen(66)) } -> c_code { happens(66); now.broken = bad; }
			:: c_expr { (may_happen(67)) } -> c_code { happens(67); now.broken = bad; }
			:: c_expr { (may_happen(68)) } -> c_code { happens(68); now.broken = bad; }
			:: c_expr { (may_happen(69)) } -> c_code { happens(69); now.broken = bad; }
			:: c_expr { (may_happen(70)) } -> c_code { happens(70); now.broken = bad; }
			:: c_expr { (may_happen(71)) } -> c_code { happens(71); now.broken = bad; }
			:: c_expr { (may_happen(72)) } -> c_code { happens(72); now.broken = bad; }
			:: c_expr { (may_happen(73)) } -> c_code { happens(73); now.broken = bad; }
			:: c_expr { (may_happen(74)) } -> c_code { happens(74); now.broken = bad; }
			:: c_expr { (may_happen(75)) } -> c_code { happens(75); now.broken = bad; }
			:: c_expr { (may_happen(76)) } -> c_code { happens(76); now.broken = bad; }
			:: c_expr { (may_happen(77)) } -> c_code { happens(77); now.broken = bad; }
			:: c_expr { (may_happen(78)) } -> c_code { happens(78); now.broken = bad; }
			:: c_expr { (may_happen(79)) } -> c_code { happens(79); now.broken = bad; }
			:: c_expr { (may_happen(80)) } -> c_code { happens(80); now.broken = bad; }
			:: c_expr { (may_happen(81)) } -> c_code { happens(81); now.broken = bad; }
			:: c_expr { (may_happen(82)) } -> c_code { happens(82); now.broken = bad; }
			:: c_expr { (may_happen(83)) } -> c_code { happens(83); now.broken = bad; }
			:: c_expr { (may_happen(84)) } -> c_code { happens(84); now.broken = bad; }
			:: c_expr { (may_happen(85)) } -> c_code { happens(85); now.broken = bad; }
			:: c_expr { (may_happen(86)) } -> c_code { happens(86); now.broken = bad; }
			:: c_expr { (may_happen(87)) } -> c_code { happens(87); now.broken = bad; }
			:: c_expr { (may_happen(88)) } -> c_code { happens(88); now.broken = bad; }
			:: c_expr { (may_happen(89)) } -> c_code { happens(89); now.broken = bad; }
			:: c_expr { (may_happen(90)) } -> c_code { happens(90); now.broken = bad; }
			:: c_expr { (may_happen(91)) } -> c_code { happens(91); now.broken = bad; }
			:: c_expr { (may_happen(92)) } -> c_code { happens(92); now.broken = bad; }
			:: c_expr { (may_happen(93)) } -> c_code { happens(93); now.broken = bad; }
			:: c_expr { (may_happen(94)) } -> c_code { happens(94); now.broken = bad; }
			:: c_expr { (may_happen(95)) } -> c_code { happens(95); now.broken = bad; }
			:: else -> c_code { Pinit->more = rest(); now.broken = bad; }
			fi;
			RULE(broken != 1, open_alone);
			RULE(broken != 2, once_opened);
			RULE(broken != 3, drain_unasked);
			RULE(broken != 4, two_deaths);
			assert(broken != 6)	/* a table of the world is too small */
		}
	:: else -> break
	od;
	c_code { now.broken = well() ? 0 : ALL_WELL; };
	RULE(broken != 5, all_well)
}
