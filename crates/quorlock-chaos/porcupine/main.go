// porcupine OUTCOMES RECORDS: judges the histories of runs of quorlock-chaos by porcupine, a checker of linearizability by
// others, and fails unless its verdict on each lock is that of quorlock-history.
//
// OUTCOMES is what quorlock-chaos wrote with --json, RECORDS the folder that it had from --keep. quorlock-history is Rust and
// has a search of its own; nothing is shared but the lines of a history.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// An outcome is the part that matters here of what quorlock-chaos writes.
type outcome struct {
	Scenario    string              `json:"scenario"`
	Micros      uint64              `json:"duration_micros"`
	BrokenLocks map[string][]string `json:"broken_locks"`
}

// refused returns the locks for which quorlock-history has found no order, or holders that exclude each other.
func (of outcome) refused() []string {
	var locks []string
	for _, check := range []string{"exclusion", "mutex", "permits"} {
		locks = append(locks, of.BrokenLocks[check]...)
	}
	slices.Sort(locks)
	return slices.Compact(locks)
}

// A verdict is porcupine's.
type verdict struct {
	attempts, holds, locks int
	refused, undecided     []string
}

// How many parts of a history are drawn.
const drawn = 10

// verdictOn judges all locks of a history, and draws the first parts that no order explains into this folder.
func verdictOn(events []event, drawings string, patience time.Duration) (verdict, error) {
	attempts, epsilon, err := attemptsOf(events)
	if err != nil {
		return verdict{}, err
	}
	locks := locksOf(attempts, epsilon)
	found := verdict{attempts: len(attempts), locks: len(locks)}
	for _, of := range attempts {
		if of.holds {
			found.holds++
		}
	}
	for lock, parts := range locks {
		for name, operations := range parts {
			result, begin, part := judge(operations, patience)
			switch result {
			case porcupine.Ok:
				continue
			case porcupine.Unknown:
				found.undecided = append(found.undecided, lock)
				continue
			}
			found.refused = append(found.refused, lock)
			if drawings != "" && len(found.refused) <= drawn {
				_, search := porcupine.CheckOperationsVerbose(model(begin), part, patience)
				file := strings.ReplaceAll(strings.TrimSpace(lock+" "+name), "/", "_") + ".html"
				if err := porcupine.VisualizePath(model(begin), search, filepath.Join(drawings, file)); err != nil {
					return found, err
				}
			}
		}
	}
	for _, locks := range []*[]string{&found.refused, &found.undecided} {
		slices.Sort(*locks)
		*locks = slices.Compact(*locks)
	}
	return found, nil
}

// compare prints both verdicts on a run, and returns whether they agree.
func compare(of outcome, found verdict) bool {
	run := fmt.Sprintf("%s: %d s, %d attempts, %d holds of %d locks: ", of.Scenario, of.Micros/1e6,
		found.attempts, found.holds, found.locks)
	theirs := of.refused()
	switch {
	case of.BrokenLocks == nil:
		fmt.Println(run + "FAILED: the outcome does not say which locks quorlock-history found broken")
	case found.holds == 0:
		fmt.Println(run + "FAILED: there is nothing to judge")
	case len(found.undecided) > 0:
		fmt.Println(run+"FAILED: porcupine did not decide about", strings.Join(found.undecided, ", "))
	case !slices.Equal(found.refused, theirs):
		fmt.Printf("%sFAILED: porcupine alone refuses %s, quorlock-history alone %s\n", run,
			some(without(found.refused, theirs)), some(without(theirs, found.refused)))
	case len(theirs) > 0:
		fmt.Printf("%sboth judges refuse %s\n", run, some(theirs))
		return true
	default:
		fmt.Println(run + "both judges find an order for each lock")
		return true
	}
	return false
}

func without(these, others []string) []string {
	return slices.DeleteFunc(slices.Clone(these), func(one string) bool { return slices.Contains(others, one) })
}

// some lists the first of these, and says how many there are.
func some(these []string) string {
	const most = 8
	if len(these) == 0 {
		return "none"
	}
	list := strings.Join(these[:min(most, len(these))], ", ")
	if len(these) > most {
		list += fmt.Sprintf(", … (%d in all)", len(these))
	}
	return list
}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 {
		log.Fatal("usage: porcupine OUTCOMES RECORDS")
	}
	text, err := os.ReadFile(os.Args[1])
	var outcomes []outcome
	if err == nil {
		err = json.Unmarshal(text, &outcomes)
	}
	agree := true
	for _, of := range outcomes {
		folder := filepath.Join(os.Args[2], of.Scenario)
		var events []event
		if err == nil {
			events, err = readFolder(filepath.Join(folder, "history"))
		}
		var found verdict
		if err == nil {
			found, err = verdictOn(events, folder, 5*time.Minute)
		}
		agree = err == nil && compare(of, found) && agree
	}
	if err != nil {
		log.Fatal(err)
	}
	if !agree {
		os.Exit(1)
	}
}
