package main

import (
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

// A step is what an operation does to the lock, for the hold with this number.
type step struct {
	what    string
	hold    int
	token   uint64
	permits int
}

const (
	take      = "take"      // alone
	share     = "share"     // with other readers
	permit    = "permit"    // with as many as there are permits
	downgrade = "downgrade" // from alone to shared
	give      = "give"      // back
)

// The state of a lock: who holds it, in order, and the largest tokens so far, of holders that were alone and of all.
type state struct {
	alone     bool
	holders   []int
	permits   int
	lastAlone uint64
	last      uint64
}

// after is the lock with fencing tokens, one operation after the other. A token of zero is none: whatever it would have been,
// a holder that is alone comes between the tokens before it and those after it.
func (before state) after(of step) (bool, state) {
	next, free := before, len(before.holders) == 0
	at, holds := slices.BinarySearch(before.holders, of.hold)
	joined := slices.Insert(slices.Clone(before.holders), at, of.hold)
	grows := func(than uint64) bool { return of.token == 0 || of.token > than }
	switch of.what {
	case take:
		next.alone, next.holders = true, joined
		next.last = max(of.token, before.last)
		next.lastAlone = next.last
		return free && grows(before.last), next
	case share:
		next.holders, next.last = joined, max(of.token, before.last)
		return !before.alone && grows(before.lastAlone), next
	case permit:
		next.holders, next.permits = joined, of.permits
		return free || before.permits == of.permits && len(before.holders) < of.permits, next
	case downgrade:
		next.alone = false
		return before.alone && holds, next
	default:
		next.alone = false
		if holds {
			next.holders = slices.Delete(slices.Clone(before.holders), at, at+1)
		}
		return holds, next
	}
}

func model(begin state) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return begin },
		Step: func(before, input, _ any) (bool, any) {
			possible, after := before.(state).after(input.(step))
			return possible, after
		},
		Equal: func(one, other any) bool {
			a, b := one.(state), other.(state)
			return a.alone == b.alone && slices.Equal(a.holders, b.holders) && a.permits == b.permits &&
				a.lastAlone == b.lastAlone && a.last == b.last
		},
		DescribeOperation: func(input, _ any) string {
			of := input.(step)
			return fmt.Sprintf("%s %d, token %d", of.what, of.hold, of.token)
		},
	}
}

// locksOf returns the operations on each lock. Each permit of a semaphore is a lock, and the semaphore itself is another,
// without tokens, since those of different permits are unrelated.
func locksOf(attempts []*attempt, epsilon int64) map[string]map[string][]porcupine.Operation {
	locks := map[string]map[string][]porcupine.Operation{}
	clients := map[string]int{}
	for hold, of := range attempts {
		if !of.holds {
			continue
		}
		if _, known := clients[of.client]; !known {
			clients[of.client] = len(clients)
		}
		add := func(part string, begins step) {
			returned := of.acquired + epsilon
			at := func(what step, call, until int64) {
				for _, resource := range of.resources {
					if locks[resource] == nil {
						locks[resource] = map[string][]porcupine.Operation{}
					}
					locks[resource][part] = append(locks[resource][part], porcupine.Operation{
						ClientId: clients[of.client], Input: what, Call: call, Return: max(call, until),
					})
				}
			}
			at(begins, of.invoked-epsilon, returned)
			// Nothing becomes possible by giving a lock back later than necessary: as soon as no client relies on it, but not
			// before it was acquired.
			if of.shared > of.acquired && of.shared < of.end {
				at(step{what: downgrade, hold: hold}, of.shared-epsilon, returned)
			}
			at(step{what: give, hold: hold}, of.end-epsilon, returned)
		}
		begins := step{what: take, hold: hold}
		if of.token != nil {
			begins.token = *of.token
		}
		if of.shared <= of.acquired {
			begins.what = share
		}
		switch {
		case of.permits == nil:
			add("", begins)
		case of.number != nil:
			add(fmt.Sprint("permit ", *of.number), begins)
		}
		if of.permits != nil {
			add("permits", step{what: permit, hold: hold, permits: *of.permits})
		}
	}
	return locks
}

// Enough operations for one search: its memory is quadratic.
const enough = 1000

// judge searches an order of the operations on one lock. Where no client holds or awaits it, all that matters of the past is
// the largest tokens, so the search begins anew there. It returns the first part that no order explains, or that took longer
// than the patience.
func judge(operations []porcupine.Operation, patience time.Duration) (porcupine.CheckResult, state, []porcupine.Operation) {
	sort.SliceStable(operations, func(a, b int) bool { return operations[a].Call < operations[b].Call })
	var begin, end state
	var returned int64
	from, holders := 0, 0
	for to := 0; to <= len(operations); to++ {
		if to == len(operations) || to-from >= enough && holders == 0 && operations[to].Call > returned {
			part := operations[from:to]
			if result := porcupine.CheckOperationsTimeout(model(begin), part, patience); result != porcupine.Ok {
				return result, begin, part
			}
			from, begin = to, end
		}
		if to < len(operations) {
			returned = max(returned, operations[to].Return)
			of := operations[to].Input.(step)
			switch of.what {
			case give:
				holders--
			case downgrade:
			default:
				holders++
			}
			end.last = max(end.last, of.token)
			if of.what == take {
				end.lastAlone = max(end.lastAlone, of.token)
			}
		}
	}
	return porcupine.Ok, begin, nil
}
