package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// history turns the lines of a case into events. Times are milliseconds:
//
//	invoked 0 ann lock      acquired 10 ann 1000 7    at 10, valid until 1000, with the fencing token 7
func history(t *testing.T, script string) []event {
	t.Helper()
	var lines strings.Builder
	for _, line := range strings.Split(strings.TrimSpace(script), ";") {
		var what, who string
		var at, number, token uint64
		fmt.Sscan(line, &what, &at, &who)
		rest := strings.Join(strings.Fields(line)[min(3, len(strings.Fields(line))):], " ")
		fields := fmt.Sprintf(`"attempt":%q`, who)
		switch what {
		case "invoked":
			client := strings.TrimRight(who, "0123456789")
			fields += fmt.Sprintf(`,"client":%q,"resource":%q`, client, rest)
		case "wants":
			fields += fmt.Sprintf(`,"resource":%q`, rest)
		case "acquired", "renewed":
			fmt.Sscan(rest, &number, &token)
			fields += fmt.Sprintf(`,"deadline":%d`, number*1e6)
			if token > 0 {
				fields += fmt.Sprintf(`,"fencing_token":%d`, token)
			}
		case "one_of":
			fields += fmt.Sprintf(`,"permits":%s`, rest)
		case "permit":
			fields += fmt.Sprintf(`,"number":%s`, rest)
		case "crashed":
			fields = fmt.Sprintf(`"client":%q`, who)
		case "clocks":
			fields, at = fmt.Sprintf(`"epsilon":%d`, at*1e6), 0
		case "not_acquired", "releasing", "released", "lost", "shares":
		default:
			t.Fatalf("%q", line)
		}
		fmt.Fprintf(&lines, `{"at":%d,"event":%q,%s}`+"\n", at*1e6, what, fields)
	}
	events, err := readLines(strings.NewReader(lines.String()))
	if err != nil {
		t.Fatal(err)
	}
	slices.SortStableFunc(events, func(a, b event) int { return int(int64(a.At) - int64(b.At)) })
	return events
}

// Histories, and the locks that porcupine must refuse.
var cases = []struct{ name, refused, script string }{
	{"one after the other", "",
		"invoked 0 ann L; acquired 10 ann 900 1; releasing 100 ann; invoked 110 bob L; acquired 120 bob 900 2; releasing 130 bob"},
	{"waiting is no hold", "",
		"invoked 0 ann L; acquired 10 ann 900 1; invoked 20 bob L; releasing 100 ann; acquired 110 bob 900 2; releasing 120 bob"},
	{"two at a time", "L",
		"invoked 0 ann L; acquired 10 ann 900 1; invoked 20 bob L; acquired 30 bob 900 2; releasing 50 bob; releasing 100 ann"},
	{"two at a time, without tokens", "L",
		"invoked 0 ann L; acquired 10 ann 900; invoked 20 bob L; acquired 30 bob 900; releasing 50 bob; releasing 100 ann"},
	{"two locks", "",
		"invoked 0 ann L; acquired 10 ann 900 1; invoked 20 bob M; acquired 30 bob 900 1; releasing 50 bob; releasing 100 ann"},
	{"the same token again", "L",
		"invoked 0 ann L; acquired 10 ann 900 7; releasing 20 ann; invoked 30 bob L; acquired 40 bob 900 7; releasing 50 bob"},
	{"a smaller token", "L",
		"invoked 0 ann L; acquired 10 ann 900 7; releasing 20 ann; invoked 30 bob L; acquired 40 bob 900 6; releasing 50 bob"},
	{"tokens in another order than returns, of attempts that overlap", "",
		"invoked 0 ann L; invoked 0 bob L; acquired 50 ann 900 6; acquired 60 bob 900 7; releasing 55 ann; releasing 90 bob"},
	{"tokens against the order of holds that overlap as attempts only", "L",
		"invoked 0 ann L; invoked 0 bob L; acquired 50 ann 900 7; acquired 60 bob 900 6; releasing 55 ann; releasing 90 bob"},
	{"it lapses", "",
		"invoked 0 ann L; acquired 10 ann 100 1; invoked 90 bob L; acquired 110 bob 900 2; releasing 150 bob"},
	{"taken before it lapses", "L",
		"invoked 0 ann L; acquired 10 ann 100 1; invoked 50 bob L; acquired 90 bob 900 2; releasing 150 bob"},
	{"taken although it was renewed", "L",
		"invoked 0 ann L; acquired 10 ann 100 1; renewed 50 ann 300; invoked 90 bob L; acquired 110 bob 900 2; releasing 150 bob"},
	{"taken after a loss that was announced", "",
		"invoked 0 ann L; acquired 10 ann 900 1; lost 50 ann; invoked 60 bob L; acquired 70 bob 900 2; releasing 80 bob"},
	{"a holder that is killed promises nothing more", "",
		"invoked 0 ann L; acquired 10 ann 900 1; crashed 50 ann; invoked 60 bob L; acquired 70 bob 900 2; releasing 80 bob"},
	{"another of this name lives on", "L",
		"invoked 0 ann1 L; crashed 5 ann; invoked 10 ann2 L; acquired 20 ann2 900 1; invoked 60 bob L; acquired 70 bob 900 2; releasing 80 bob"},
	{"unknown outcomes: killed while acquiring, and still acquiring at the end", "",
		"invoked 0 ann L; crashed 50 ann; invoked 10 cid L; invoked 20 bob L; acquired 70 bob 900 2; releasing 80 bob"},
	{"an unknown outcome excuses nothing", "L",
		"invoked 0 ann L; crashed 50 ann; invoked 0 cid L; acquired 5 cid 900 1; invoked 20 bob L; acquired 70 bob 900 2; releasing 80 bob; releasing 90 cid"},
	{"a failed attempt holds nothing", "",
		"invoked 0 ann L; not_acquired 50 ann; invoked 10 bob L; acquired 20 bob 900 2; releasing 80 bob"},
	{"a lease that was over when it was returned", "",
		"invoked 0 ann L; acquired 200 ann 100 1; invoked 110 bob L; acquired 120 bob 900 2; releasing 300 bob"},
	{"a lease that was over when it was returned, but never free until then", "L",
		"invoked 0 cid L; acquired 10 cid 900 1; invoked 20 ann L; acquired 200 ann 100 2; releasing 300 cid"},
	{"readers", "",
		"invoked 0 ann L; shares 0 ann; acquired 10 ann 900 2; invoked 20 bob L; shares 20 bob; acquired 30 bob 900 1; releasing 50 bob; releasing 60 ann"},
	{"a writer among readers", "L",
		"invoked 0 ann L; shares 0 ann; acquired 10 ann 900 1; invoked 20 bob L; acquired 30 bob 900 2; releasing 50 bob; releasing 60 ann"},
	{"a reader beside a writer", "L",
		"invoked 0 ann L; acquired 10 ann 900 1; invoked 20 bob L; shares 20 bob; acquired 30 bob 900 2; releasing 50 bob; releasing 60 ann"},
	{"a reader's token not larger than a writer's", "L",
		"invoked 0 ann L; acquired 10 ann 900 2; releasing 15 ann; invoked 20 bob L; shares 20 bob; acquired 30 bob 900 2; releasing 50 bob"},
	{"a reader's token not larger than that of a reader before a writer without one", "L",
		"invoked 0 ann L; shares 0 ann; acquired 5 ann 900 7; releasing 6 ann; invoked 10 cid L; acquired 15 cid 900; releasing 16 cid; invoked 20 bob L; shares 20 bob; acquired 30 bob 900 6; releasing 50 bob"},
	{"a reader after a downgrade", "",
		"invoked 0 ann L; acquired 10 ann 900 1; shares 15 ann; invoked 20 bob L; shares 20 bob; acquired 30 bob 900 2; releasing 50 bob; releasing 60 ann"},
	{"a writer after a downgrade", "L",
		"invoked 0 ann L; acquired 10 ann 900 1; shares 15 ann; invoked 20 bob L; acquired 30 bob 900 2; releasing 50 bob; releasing 60 ann"},
	{"both permits", "",
		"invoked 0 ann S; one_of 0 ann 2; permit 0 ann 0; acquired 10 ann 900 1; invoked 20 bob S; one_of 20 bob 2; permit 20 bob 1; acquired 30 bob 900 1; releasing 50 bob; releasing 60 ann"},
	{"the same permit twice", "S",
		"invoked 0 ann S; one_of 0 ann 2; permit 0 ann 1; acquired 10 ann 900 1; invoked 20 bob S; one_of 20 bob 2; permit 20 bob 1; acquired 30 bob 900 2; releasing 50 bob; releasing 60 ann"},
	{"a third of two permits", "S",
		"invoked 0 ann S; one_of 0 ann 2; acquired 10 ann 900; invoked 0 cid S; one_of 0 cid 2; acquired 10 cid 900; invoked 20 bob S; one_of 20 bob 2; acquired 30 bob 900; releasing 50 bob; releasing 60 ann; releasing 60 cid"},
	{"holders that disagree about the number of permits", "S",
		"invoked 0 ann S; one_of 0 ann 2; permit 0 ann 0; acquired 10 ann 900 1; invoked 20 bob S; one_of 20 bob 3; permit 20 bob 1; acquired 30 bob 900 1; releasing 50 bob; releasing 60 ann"},
	{"several locks, and one of them twice", "M",
		"invoked 0 ann L; wants 0 ann M; acquired 10 ann 900 1; invoked 20 bob M; acquired 30 bob 900 2; releasing 50 bob; releasing 60 ann"},
	{"clocks that may explain it", "",
		"clocks 5; invoked 0 ann L; acquired 10 ann 900 1; invoked 20 bob L; releasing 100 ann; acquired 94 bob 900 2; releasing 120 bob"},
	{"clocks that may explain the order of tokens", "",
		"clocks 5; invoked 0 ann L; acquired 10 ann 900 2; invoked 19 bob L; acquired 19 bob 900 1; releasing 19 bob; releasing 40 ann"},
	{"clocks that are not off by so much", "L",
		"clocks 2; invoked 0 ann L; acquired 10 ann 900 1; invoked 20 bob L; releasing 100 ann; acquired 94 bob 900 2; releasing 120 bob"},
}

func TestTheVerdictOnHistoriesWrittenByHand(t *testing.T) {
	for _, of := range cases {
		found, err := verdictOn(history(t, of.script), t.TempDir(), time.Minute)
		if err != nil {
			t.Fatalf("%s: %v", of.name, err)
		}
		if refused := strings.Join(found.refused, " "); refused != of.refused {
			t.Errorf("%s: refused %q, not %q", of.name, refused, of.refused)
		}
	}
}

func TestWhatIsNoHistoryIsAnError(t *testing.T) {
	for _, script := range []string{"acquired 10 ann 900 1", "invoked 0 ann L; invoked 5 ann L"} {
		if _, err := verdictOn(history(t, script), "", time.Minute); err == nil {
			t.Errorf("%q was judged", script)
		}
	}
	if _, err := readFolder(t.TempDir()); err == nil {
		t.Error("an empty folder is a history")
	}
}

// A search begins anew where no client holds or awaits the lock. What it carries over are the tokens.
func TestALongHistoryIsJudgedAsAWhole(t *testing.T) {
	refused := func(script []string) string {
		found, err := verdictOn(history(t, strings.Join(script, ";")), "", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(found.refused, " ")
	}
	hold := func(number, token int) string {
		at := number*10 + 10
		return fmt.Sprintf("invoked %d a%d L; acquired %d a%d %d %d; releasing %d a%d",
			at, number, at+1, number, at+900, token, at+5, number)
	}
	// An odd number of operations, or no hold would begin before the thousandth and end after it.
	script := []string{"invoked 1 bob L; acquired 2 bob 900; shares 3 bob; releasing 4 bob"}
	for number := range enough {
		script = append(script, hold(number, number+10))
		if number > enough/2-9 && number < enough/2+9 && refused(append(script, hold(number+1, 5))) != "L" {
			t.Errorf("after %d holds a small token was not refused", number+1)
		}
	}
	if found := refused(script); found != "" {
		t.Errorf("refused %q", found)
	}
	end := enough*10 + 100
	waits := fmt.Sprintf("invoked 0 ann L; acquired %d ann %d %d; releasing %d ann", end, end+900, enough+10, end+1)
	if found := refused(append(script, waits)); found != "" {
		t.Errorf("refused %q because of one that waited all the time", found)
	}
}

func TestJudgesThatDisagreeFail(t *testing.T) {
	theirs := func(locks ...string) outcome {
		return outcome{Scenario: "x", BrokenLocks: map[string][]string{"mutex": locks, "loss": {"other"}}}
	}
	for _, of := range []struct {
		theirs outcome
		ours   verdict
		agree  bool
	}{
		{theirs(), verdict{holds: 1}, true},
		{theirs("L"), verdict{holds: 1, refused: []string{"L"}}, true},
		{theirs("L"), verdict{holds: 1}, false},
		{theirs(), verdict{holds: 1, refused: []string{"L"}}, false},
		{theirs("L"), verdict{holds: 1, refused: []string{"M"}}, false},
		{theirs(), verdict{holds: 1, undecided: []string{"L"}}, false},
		{theirs(), verdict{}, false},
		{outcome{}, verdict{holds: 1}, false},
	} {
		if compare(of.theirs, of.ours) != of.agree {
			t.Errorf("%+v and %+v: %v", of.theirs, of.ours, !of.agree)
		}
	}
}
