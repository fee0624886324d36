/* swap.pml -- ask, answer, watermark; swap, crash, roll back: no request lost or sent twice, no charge
 * missed, no region freed under a reader.
 *
 * Stands for  actors/ingress/ask.c: send_question, heard_answer, end_reading, hold, cancel, ask_end,
 *             close_stream, ask_activate, ask_gone, ask_all_again; actors/policy: policy_on_ask,
 *             policy_on_cancel, policy_open_if_complete, policy_on_open_late, policy_on_drain; overlay.c overlay_push,
 *             overlay_settle; actors/ingress/ledger.c ledger_charge, ledger_release; a supervisor
 *             after the rules of actors/supervisor/reload.h (its code itself: two_swaps.pml).
 * Scale       NI ingresses with one slot (and one region) each, NREQ requests each; three policy
 *             processes: P0 asked of generation g, P1 its standby, P2 of g+1; the environment may
 *             kill policies (KP, of KMASK), an ingress (KI), the supervisor (KS), or send a client
 *             away (KC).  All budgets are finite and nothing spins, so every run ends: "in the end"
 *             is a state in which nothing can move (proctype quiet), no fairness is needed; the
 *             environment may stop at any point, so kills never hide a deadlock.
 *             One answer's apply (cell, then watermark) and one decision (watermarks, cells,
 *             overlay, choice) are ONE step each: their inner order is overlay.pml's.
 *             Here the death of P2 rolls back at once, to P1 while nobody asked it; reload.h takes
 *             two deaths.  A process of g+1 that follows a dead one is asked like P1 after P0.
 * Channels    qa ingress -> policy, an policy -> ingress (ZMQ), sI supervisor -> ingress.  A kill
 *             empties the victim's inbox and cuts its outbox after any number of messages; what is
 *             left may still be delivered, at any time.
 * Rules       sent_once         a request goes upstream once
 *             new_rules         after the reload was answered none goes under the old rules
 *             no_charge_missed  a decision sees every request that was applied, and what was in
 *                               flight from another process was not applied besides
 *             bytes_stay        a region is freed when no live process has, or can still receive,
 *                               its question
 *             all_end           in the end every request has ended, its region is free, its charge
 *                               released, the reload answered
 * Switches    LATE          P opens by its own 100 ms timer (at any time once it was asked).  What g
 *                           has answered and a late ingress applies afterwards may be missed then:
 *                           with LATE no_charge_missed is not asked (NOI4), counted as swap_open_late
 *             LATEBORN      ingress 1 is born at any moment, told the process wanted then
 *             SWAPAFTER     the swap starts only after the standby was opened (P0 was killed)
 *             B_STANDBYFREE the standby does not wait for OPEN after a death
 *             B_NOASK       an answer is matched by slot and generation alone, and B_NOCLOSE: the old
 *                           stream stays open: either alone holds, the two defences are independent
 *             B_FREEEARLY   the region is freed at the end of the request, whoever was asked
 *             B_HELDFREE    a `hold` counts as the end of reading
 *             B_NOREASK     HELD slots are not asked again
 *             B_NOWAIT      g+1 opens at ACTIVATE, and NORESENT: it does not wait for every RESENT;
 *                           either alone holds: a RESENT comes after the stream was closed
 *             B_RESEND      what was sent upstream is asked again too
 *             B_EARLYREPLY  the reload is answered when ACTIVATE was sent
 *
 * run small holds -DHV=0                              # 100,568 states, 1.7 s
 * run small breaks new_rules -DHV=0 -DB_NOASK -DB_NOCLOSE
 * run small breaks sent_once -DHV=0 -DB_RESEND
 * run small breaks bytes_stay -DHV=0 -DKC=1 -DB_FREEEARLY
 * run small breaks no_charge_missed -DHV=0 -DB_NOWAIT -DNORESENT
 * run small breaks new_rules -DHV=0 -DB_EARLYREPLY
 * run all holds -DHV=0 -DNORESENT                     # 108,880 states, 5 s
 * run all holds -DHV=0 -DB_NOWAIT                     # 108,664 states, 2 s
 * run all holds -DHV=0 -DB_NOASK                      # 100,568 states, 2 s
 * run all holds -DHV=0 -DB_NOCLOSE                    # 100,568 states, 1 s
 * run all holds                                       # 234,968 states, 3 s
 * run all holds -DHV=0 -DKP=1 -DKMASK=1               # 6,185,906 states, 25 s
 * run all holds -DHV=0 -DKP=1 -DKMASK=4               # not completed in 150 s
 * run all holds -DHV=0 -DKC=1                         # 355,427 states, 5 s
 * run all holds -DHV=0 -DKI=1                         # 346,262 states, 2 s
 * run all holds -DHV=0 -DLATEBORN                     # 121,253 states, 1 s
 * run all holds -DHV=0 -DLATE -DNOI4 -DKS=1           # not completed in 150 s
 * run all breaks bytes_stay -DKC=1 -DB_HELDFREE
 * run all breaks all_end -DB_NOREASK
 * run all breaks no_charge_missed -DHV=0 -DKP=1 -DKMASK=1 -DB_STANDBYFREE
 */
#ifndef NREQ
#define NREQ 1
#endif
#ifndef KP
#define KP 0
#endif
#ifndef KMASK
#define KMASK 7       /* which policies may be killed */
#endif
#ifndef KI
#define KI 0
#endif
#ifndef KC
#define KC 0
#endif
#ifndef KS
#define KS 0
#endif
#ifndef HV
#define HV 1        /* ingresses whose requests may be held: 0, 1 (only the first), 2 */
#endif
#define RULE(cond, name) assert((cond) || name)
hidden byte sent_once, new_rules, no_charge_missed, bytes_stay, all_end;

#define NI 2
#define NP 3
#define IX(i,p) ((i)*NP+(p))
#define NONE 9
#define B(p) (1<<(p))

mtype = { ASK, CANCEL, CHOOSE, HOLD, CANCELLED };
mtype = { FREE, ASKED, HELD, CHOSEN, SENT, GONE, DONE };

chan qa[6] = [4] of { mtype, byte, byte };        /* what, slot generation, ask */
chan an[6] = [5] of { mtype, byte, byte };        /* what, slot generation, ask; numbers are implied by the order */
chan sI[NI] = [2] of { byte };                    /* ACTIVATE p */

/* ingress */
bool  iAlive[NI]; bool zeroed[NI];
byte  rs[NI];             /* bit p: RESENT to p */
mtype st[NI]; byte gen[NI]; byte ask[NI]; byte nreq[NI];
byte  act[NI];            /* policy asked now, NONE while there is none */
byte  closed[NI];         /* bit p: stream of p is closed */
byte  rd[NI];             /* bit p: p was asked and may still read the region */
byte  seen[NI];           /* bit p: pidfd of p was seen and `gone p` acknowledged to S */
byte  ackd[NI];
bit   cell[NI]; bool wc[NI];
byte  cs[NI];             /* bit p: a cancel was sent */
byte  la[6];              /* last ask put to p */
/* policy */
bool  pAlive[NP]; bool opened[NP]; bool drain[NP]; bool late[NP];
byte  pend[6];            /* 0 none, 1 to decide, 2 held */
byte  pg[6]; byte pa[6];
/* Numbers and watermark are kept relative (same meaning, fewer states): num = numbered answers sent and not
 * yet applied or discarded; ov = how many of them up to the newest choice; ov > 0 = still in the overlay. */
byte  num[6]; byte ov[6];
/* supervisor */
byte  sw; byte tgt; bool sAlive = true; bool reloadDone; bool rollback; bool absent; bool born = true;
/* ghosts */
byte  by[NI]; byte disp[NI]; bool quit;
/* I4: the decision under way for i did not see one under way for the other ingress from another process:
 * 0 saw everything; 1 both in flight; 2 i's is applied; 3 the other's is applied.  Both applied = violation. */
byte  miss[NI];

#ifdef NOI4            /* look at the other invariants only */
#define I4(x) skip
#else
#define I4(x) RULE(x, no_charge_missed)
#endif
#ifdef B_NOASK
#define CURRENT(i) true
#else
#define CURRENT(i) (a == ask[i])
#endif
#ifdef B_NOCLOSE
#define LISTEN(i,p) true
#else
#define LISTEN(i,p) (!(closed[i] & B(p)))
#endif
#ifdef B_FREEEARLY
#define UNREAD(i) true
#else
#define UNREAD(i) (rd[i] == 0)
#endif

inline unmiss(i) { miss[i] = 0; miss[1-(i)] = 0 }
inline unmiss2(i,p) { if :: st[i] == CHOSEN || st[i] == SENT :: else -> unmiss(i) fi }
inline doask(i) {
  ask[i]++; unmiss(i); st[i] = ASKED;
  if
  :: act[i] != NONE ->
     rd[i] = rd[i] | B(act[i]); cs[i] = cs[i] & ~B(act[i]); la[IX(i,act[i])] = ask[i];
     if
     :: pAlive[act[i]] -> assert(nfull(qa[IX(i,act[i])])); qa[IX(i,act[i])]!ASK,gen[i],ask[i]
     :: else           /* EHOSTUNREACH; the pidfd will tell */
     fi
  :: else              /* kept, asked when there is an active one */
  fi
}
inline reask(i) {      /* "release and re-ask every slot ASKED, HELD or CHOSEN" */
  if
  :: st[i] == ASKED -> doask(i)
#ifndef B_NOREASK
  :: st[i] == HELD  -> doask(i)
#endif
  :: st[i] == CHOSEN -> cell[i] = 0; doask(i)
#ifdef B_RESEND
  :: st[i] == SENT -> cell[i] = 0; doask(i)
#endif
  :: else
  fi;
  if :: act[i] != NONE -> rs[i] = rs[i] | B(act[i]) :: else fi
}
inline sendcancel(i,p) {
  if
  :: (rd[i] & B(p)) && !(cs[i] & B(p)) && pAlive[p] -> cs[i] = cs[i] | B(p); assert(nfull(qa[IX(i,p)])); qa[IX(i,p)]!CANCEL,gen[i],la[IX(i,p)]
  :: else
  fi
}
inline handle(i,p) {
  an[IX(i,p)]?v,g,a;
  if
  :: v == CANCELLED ->
     if
     :: g == gen[i] && a == la[IX(i,p)] -> rd[i] = rd[i] & ~B(p)
     :: else
     fi
  :: else ->
     if
     :: g == gen[i] && (st[i] == ASKED || st[i] == HELD) && CURRENT(i) && LISTEN(i,p) ->
        if
        :: v == CHOOSE -> I4(miss[i] != 3 && miss[1-(i)] != 2);
                          if :: miss[i] == 1 -> miss[i] = 2 :: else fi;
                          if :: miss[1-(i)] == 1 -> miss[1-(i)] = 3 :: else fi;
                          st[i] = CHOSEN; cell[i] = 1; by[i] = p
        :: v == HOLD   -> st[i] = HELD
        fi
     :: else                                              /* discarded: no effect but the watermark */
     fi;
     if
#ifdef B_HELDFREE
     :: g == gen[i] && a == la[IX(i,p)] -> rd[i] = rd[i] & ~B(p)
#else
     :: v == CHOOSE && g == gen[i] && a == la[IX(i,p)] -> rd[i] = rd[i] & ~B(p)
#endif
     :: else
     fi;
     if :: num[IX(i,p)] > 0 -> num[IX(i,p)]-- :: else fi;     /* applied[p] + 1 */
     if :: ov[IX(i,p)] > 0 -> ov[IX(i,p)]-- :: else fi
  fi;
  v = 0; g = 0; a = 0
}
/* I5: nobody alive has the question, or can still receive it */
inline freecheck(i) {
  x = 0;
  do
  :: x < NP ->
     RULE(!(pAlive[x] && pend[IX(i,x)] && pg[IX(i,x)] == gen[i]), bytes_stay);
     RULE((!(pAlive[x] && qa[IX(i,x)]??[ASK,eval(gen[i]),_]) || qa[IX(i,x)]??[CANCEL,eval(gen[i]),_]), bytes_stay);
     x++
  :: else -> x = 0; break
  od
}
inline pidfd(i,p) {
  seen[i] = seen[i] | B(p); closed[i] = closed[i] | B(p); rd[i] = rd[i] & ~B(p);
  if
  :: act[i] == p ->
     act[i] = NONE;
     if
     :: p == 0 && !(closed[i] & B(1)) -> act[i] = 1
     :: else
     fi;
     unmiss2(i,p);
     m = 1
  :: else
  fi
}

proctype ingress(byte i) {
  byte p, g, a, x; mtype v; bit m;
  do
  :: atomic { iAlive[i] && st[i] == FREE && nreq[i] > 0 ->
       nreq[i]--; gen[i]++; ask[i] = 0; disp[i] = 0; by[i] = NONE; doask(i) }
  :: atomic { iAlive[i] && nempty(an[IX(i,0)]) -> handle(i,0) }
  :: atomic { iAlive[i] && nempty(an[IX(i,1)]) -> handle(i,1) }
  :: atomic { iAlive[i] && nempty(an[IX(i,2)]) -> handle(i,2) }
  :: atomic { iAlive[i] && st[i] == CHOSEN ->                  /* first byte upstream */
       st[i] = SENT; disp[i]++;
       RULE(disp[i] == 1, sent_once);
       RULE(!(reloadDone && !rollback && by[i] < 2), new_rules) }
  :: atomic { iAlive[i] && st[i] == SENT -> cell[i] = 0; st[i] = DONE; sendcancel(i,0); sendcancel(i,1); sendcancel(i,2) }
  :: atomic { iAlive[i] && (st[i] == DONE || st[i] == GONE) && UNREAD(i) -> freecheck(i); st[i] = FREE; wc[i] = 0; cs[i] = 0; by[i] = NONE; disp[i] = 0 }
  :: atomic { iAlive[i] && nempty(sI[i]) ->                    /* ask_activate: close, acknowledge ... */
       sI[i]?p;
       if
       :: act[i] == p -> m = 0                               /* moved there by itself */
       :: else ->
          if
          :: act[i] != NONE -> closed[i] = closed[i] | B(act[i]); sendcancel(i,act[i])
          :: else
          fi;
          unmiss2(i,p);
          act[i] = (closed[i] & B(p) -> NONE : p);            /* dead, or closed for good */
          m = 1
       fi;
       ackd[i] = ackd[i] | B(p); p = 0 };
     atomic { if :: iAlive[i] && m -> reask(i) :: else fi; m = 0 }    /* ... and ask again */
  :: atomic { iAlive[i] && !pAlive[0] && !(seen[i] & 1) -> pidfd(i,0) };
     atomic { if :: iAlive[i] && m -> reask(i) :: else fi; m = 0 }
  :: atomic { iAlive[i] && !pAlive[1] && !(seen[i] & 2) -> pidfd(i,1) };
     atomic { if :: iAlive[i] && m -> reask(i) :: else fi; m = 0 }
  :: atomic { iAlive[i] && !pAlive[2] && !(seen[i] & 4) -> pidfd(i,2) };
     atomic { if :: iAlive[i] && m -> reask(i) :: else fi; m = 0 }
  :: atomic { iAlive[i] && wc[i] && (st[i] == ASKED || st[i] == HELD || st[i] == CHOSEN) ->  /* client gone */
       wc[i] = 0; cell[i] = 0; st[i] = GONE; unmiss(i); sendcancel(i,0); sendcancel(i,1); sendcancel(i,2) }
  :: atomic { iAlive[i] && act[i] == NONE && (absent || !sAlive) && (st[i] == ASKED || st[i] == HELD) -> st[i] = DONE; sendcancel(i,0); sendcancel(i,1); sendcancel(i,2) } /* 503 */
  :: atomic { (!iAlive[i] && (born || i == 0)) || quit -> break }
  od
}

/* I4: p is about to choose. In flight from another process and still going to be applied? */
inline look(i,j,p,q) {
  if
  :: q != p && !(closed[i] & B(p)) && iAlive[j] && !(closed[j] & B(q)) && !cell[j] && (st[j] == ASKED || st[j] == HELD) && an[IX(j,q)]??[CHOOSE,eval(gen[j]),eval(ask[j])] -> miss[i] = 1
  :: else
  fi
}
inline decide(i,p) {
  /* applied ones: the cell shows it, or our own overlay does */
  I4(!(iAlive[0] && (st[0] == CHOSEN || st[0] == SENT)) || cell[0] || ov[IX(0,p)] > 0);
  I4(!(iAlive[1] && (st[1] == CHOSEN || st[1] == SENT)) || cell[1] || ov[IX(1,p)] > 0);
  miss[i] = 0; look(i,1-(i),p,0); look(i,1-(i),p,1); look(i,1-(i),p,2);
  num[IX(i,p)]++; ov[IX(i,p)] = num[IX(i,p)]; pend[IX(i,p)] = 0;
  say(i,p,CHOOSE); pg[IX(i,p)] = 0; pa[IX(i,p)] = 0
}
inline say(i,p,what) {
  if
  :: iAlive[i] -> assert(nfull(an[IX(i,p)])); an[IX(i,p)]!what,pg[IX(i,p)],pa[IX(i,p)]
  :: else
  fi
}
inline hear(i,p) {
  qa[IX(i,p)]?v,g,a;
  if
  :: v == ASK -> pend[IX(i,p)] = 1; pg[IX(i,p)] = g; pa[IX(i,p)] = a    /* replaces an older one of that slot */
  :: v == CANCEL ->
     if
     :: pend[IX(i,p)] && pg[IX(i,p)] == g -> pend[IX(i,p)] = 0; pg[IX(i,p)] = 0; pa[IX(i,p)] = 0
     :: else                                                           /* unknown slot: also answered */
     fi;
     if
     :: iAlive[i] -> assert(nfull(an[IX(i,p)])); an[IX(i,p)]!CANCELLED,g,a
     :: else
     fi
  fi;
  v = 0; g = 0; a = 0
}
inline die(p) {
  pAlive[p] = false; pend[IX(0,p)] = 0; pend[IX(1,p)] = 0; ov[IX(0,p)] = 0; ov[IX(1,p)] = 0;
  pg[IX(0,p)] = 0; pg[IX(1,p)] = 0; pa[IX(0,p)] = 0; pa[IX(1,p)] = 0; num[IX(0,p)] = 0; num[IX(1,p)] = 0;
  do :: nempty(qa[IX(0,p)]) -> qa[IX(0,p)]?_,_,_ :: empty(qa[IX(0,p)]) -> break od;
  do :: nempty(qa[IX(1,p)]) -> qa[IX(1,p)]?_,_,_ :: empty(qa[IX(1,p)]) -> break od
}
#ifdef NORESENT
#define OPEN(p) (opened[p])
#elif defined B_STANDBYFREE
#define OPEN(p) (opened[p] || (p) == 1)
#else
#define OPEN(p) (opened[p] && (late[p] || ((!iAlive[0] || (rs[0] & B(p))) && (!iAlive[1] || (rs[1] & B(p))))))
#endif

proctype policy(byte p) {
  byte g, a; mtype v;
  do
  :: atomic { pAlive[p] && nempty(qa[IX(0,p)]) -> hear(0,p) }
  :: atomic { pAlive[p] && nempty(qa[IX(1,p)]) -> hear(1,p) }
  :: atomic { pAlive[p] && OPEN(p) && pend[IX(0,p)] -> decide(0,p) }
  :: atomic { pAlive[p] && OPEN(p) && pend[IX(1,p)] -> decide(1,p) }
#if HV > 0
  :: atomic { pAlive[p] && OPEN(p) && pend[IX(0,p)] == 1 -> pend[IX(0,p)] = 2; num[IX(0,p)]++; say(0,p,HOLD) }
#endif
#if HV > 1
  :: atomic { pAlive[p] && OPEN(p) && pend[IX(1,p)] == 1 -> pend[IX(1,p)] = 2; num[IX(1,p)]++; say(1,p,HOLD) }
#endif
#ifdef LATE
  :: atomic { pAlive[p] && !opened[p] && (pend[IX(0,p)] || pend[IX(1,p)]) -> opened[p] = true; late[p] = true }
#endif
  :: atomic { pAlive[p] && drain[p] -> die(p) }                /* exit: what was sent is still delivered */
  :: atomic { !pAlive[p] || quit -> break }
  od
}

#define ALLACK(p)  ((!iAlive[0] || (ackd[0] & B(p))) && (!iAlive[1] || (ackd[1] & B(p))))
#define ALLGONE(p) ((!iAlive[0] || (seen[0] & B(p))) && (!iAlive[1] || (seen[1] & B(p))))
inline toall(p) {
  if :: iAlive[0] -> sI[0]!p :: else fi;
  if :: iAlive[1] -> sI[1]!p :: else fi
}
proctype supervisor() {
  do
#ifdef SWAPAFTER
  :: atomic { sAlive && sw == 0 && opened[1] ->
#else
  :: atomic { sAlive && sw == 0 ->
#endif
       if
       :: pAlive[2] -> sw = 1; tgt = 2; toall(2);
#ifdef B_NOWAIT
          opened[2] = true;
#endif
#ifdef B_EARLYREPLY
          reloadDone = true
#endif
       :: else -> sw = 9
       fi }
  :: atomic { sAlive && sw == 1 && pAlive[2] && ALLACK(2) ->
       sw = 2; opened[2] = true; reloadDone = true;
       drain[0] = true; if :: !pAlive[0] -> drain[1] = true :: else fi
     }
  :: atomic { sAlive && (sw == 1 || sw == 2) && !pAlive[2] -> rollback = true;   /* probation */
       if
       :: pAlive[1] && !opened[1] -> sw = 3; tgt = 1; toall(1)
       :: else -> sw = 8; absent = true; drain[0] = true; drain[1] = true      /* a fresh one is started: not modelled */
       fi }
  :: atomic { sAlive && sw == 3 && pAlive[1] && ALLACK(1) -> sw = 4; opened[1] = true; drain[0] = true }
  :: atomic { sAlive && (sw == 3 || sw == 4) && !pAlive[1] -> sw = 8; absent = true; drain[0] = true }
  :: atomic { sAlive && !opened[1] && pAlive[1] && !pAlive[0] && (sw == 0 || sw == 9) && ALLGONE(0) -> opened[1] = true }
  :: atomic { sAlive && sw == 9 && !pAlive[0] && !pAlive[1] && !absent -> absent = true }
#ifdef LATEBORN
  :: atomic { sAlive && !born -> born = true; iAlive[1] = true;     /* birth{active}: counts as acknowledged */
       act[1] = tgt; ackd[1] = B(tgt); rs[1] = 7
     }
#endif
  :: atomic { sAlive && !iAlive[0] && !zeroed[0] -> zeroed[0] = true; cell[0] = 0 }
  :: atomic { sAlive && !iAlive[1] && born && !zeroed[1] -> zeroed[1] = true; cell[1] = 0 }
  :: atomic { !sAlive || quit -> break }
  od
}

inline cut(i,p) {            /* a kill loses any suffix of what was sent */
  c = len(an[IX(i,p)]);
  do
  :: c > 0 -> an[IX(i,p)]?v,g,a; an[IX(i,p)]!v,g,a; c--
  :: c > 0 -> do :: c > 0 -> an[IX(i,p)]?_,_,_; c-- :: else -> break od
  :: c == 0 -> break
  od;
  v = 0; g = 0; a = 0
}
inline killP(p) { die(p); cut(0,p); cut(1,p) }
inline killI(i) {
  iAlive[i] = false; rd[i] = 0; wc[i] = 0;
  x = 0;
  do
  :: x < NP ->
     do :: nempty(an[IX(i,x)]) -> an[IX(i,x)]?_,_,_ :: empty(an[IX(i,x)]) -> break od;
     x++
  :: else -> x = 0; break
  od;
  do :: nempty(sI[i]) -> sI[i]?_ :: empty(sI[i]) -> break od
}
proctype env() {
  byte kp = KP, ki = KI, kc = KC, ks = KS, c, x, g, a; mtype v;
  do
  :: atomic { kp > 0 && (KMASK & 1) && pAlive[0] -> kp--; killP(0) }
  :: atomic { kp > 0 && (KMASK & 2) && pAlive[1] -> kp--; killP(1) }
  :: atomic { kp > 0 && (KMASK & 4) && pAlive[2] -> kp--; killP(2) }
  :: atomic { ki > 0 && iAlive[1] -> ki--; killI(1) }
  :: atomic { kc > 0 && iAlive[0] && (st[0] == ASKED || st[0] == HELD || st[0] == CHOSEN) -> kc--; wc[0] = 1 }
  :: atomic { ks > 0 && sAlive -> ks--; sAlive = false }
  :: break
  od
}
/* I1, I5, I6: nothing moves any more: every request of a live ingress has ended, its region is free */
proctype quiet() {
  timeout ->
  atomic {
    RULE(!iAlive[0] || (st[0] == FREE && nreq[0] == 0), all_end);
    RULE(!iAlive[1] || (st[1] == FREE && nreq[1] == 0), all_end);
    RULE(cell[0] == 0 || !iAlive[0], all_end);
    RULE(cell[1] == 0 || !iAlive[1], all_end);
#ifndef SWAPAFTER
    RULE(!sAlive || (sw != 0 && sw != 1 && sw != 3), all_end);
#endif
    quit = true
  }
}
init {
  atomic {
    byte k = 0;
    do
    :: k < NI -> iAlive[k] = true; st[k] = FREE; nreq[k] = NREQ; act[k] = 0; by[k] = NONE; k++
    :: else -> break
    od;
    pAlive[0] = true; pAlive[1] = true; pAlive[2] = true; opened[0] = true; rs[0] = 1; rs[1] = 1;
#ifdef LATEBORN
    iAlive[1] = false; born = false;
#endif
    run ingress(0); run ingress(1); run policy(0); run policy(1); run policy(2);
    run supervisor(); run env(); run quiet()
  }
}
