package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"sort"
)

// An event is one line of a history: the fields that concern holds, of those that crates/quorlock-history documents.
type event struct {
	At       uint64  `json:"at"`
	Event    string  `json:"event"`
	Client   string  `json:"client"`
	Resource string  `json:"resource"`
	Attempt  string  `json:"attempt"`
	Deadline uint64  `json:"deadline"`
	Token    *uint64 `json:"fencing_token"`
	Permits  *int    `json:"permits"`
	Number   *int    `json:"number"`
	Epsilon  uint64  `json:"epsilon"`
}

// An attempt is what became of one call of acquire.
//
// A hold ends when its client can no longer rely on it: when it begins to release the lock, learns of the loss or is
// killed, at the latest at the end of the validity that it knows of. What the nodes store for longer excludes others, but
// promises its client nothing. An attempt of which no lease is known, because it failed, was cancelled, or died with its
// client, may have taken the lock on the nodes or not. It promises nothing either, and no client learns its token: if an order
// explains the others with it, the same order does without it.
type attempt struct {
	client    string
	resources []string
	invoked   int64
	acquired  int64
	deadline  int64
	end       int64
	shared    int64
	permits   *int
	number    *int
	token     *uint64
	holds     bool
}

const never = math.MaxInt64

func stamp(nanos uint64) int64 { return int64(min(nanos, never)) }

// readFolder reads the files of all recorders, in the order of their events.
func readFolder(folder string) ([]event, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.jsonl"))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%s has no history", folder)
	}
	var events []event
	for _, name := range files {
		var text []byte
		if err == nil {
			text, err = os.ReadFile(name)
		}
		if err == nil {
			// A process that was killed while writing leaves an incomplete line.
			var more []event
			more, err = readLines(bytes.NewReader(text[:bytes.LastIndexByte(text, '\n')+1]))
			events = append(events, more...)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	sort.SliceStable(events, func(a, b int) bool { return events[a].At < events[b].At })
	return events, err
}

func readLines(from io.Reader) ([]event, error) {
	var events []event
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		var next event
		if err := json.Unmarshal(lines.Bytes(), &next); err != nil {
			return nil, err
		}
		events = append(events, next)
	}
	return events, lines.Err()
}

// attemptsOf returns all attempts, and by how much the stamps of different hosts may differ from the true time.
func attemptsOf(events []event) (attempts []*attempt, epsilon int64, err error) {
	named := map[string]*attempt{}
	alive := map[string][]*attempt{}
	for _, next := range events {
		at := stamp(next.At)
		switch next.Event {
		case "clocks":
			epsilon = max(epsilon, stamp(next.Epsilon))
			continue
		case "crashed":
			for _, dead := range alive[next.Client] {
				dead.end = min(dead.end, at)
			}
			delete(alive, next.Client)
			continue
		case "invoked":
			if named[next.Attempt] != nil {
				return nil, 0, fmt.Errorf("%s began twice", next.Attempt)
			}
			began := &attempt{client: next.Client, resources: []string{next.Resource}, invoked: at, end: never, shared: never}
			named[next.Attempt] = began
			alive[next.Client] = append(alive[next.Client], began)
			attempts = append(attempts, began)
			continue
		case "wants", "shares", "one_of", "permit", "acquired", "renewed", "releasing", "lost":
		default:
			continue
		}
		of := named[next.Attempt]
		if of == nil {
			return nil, 0, fmt.Errorf("%s never began", next.Attempt)
		}
		switch next.Event {
		case "wants":
			of.resources = append(of.resources, next.Resource)
		case "shares":
			of.shared = at
		case "one_of":
			of.permits = next.Permits
		case "permit":
			of.number = next.Number
		case "acquired":
			of.holds, of.acquired, of.token = true, at, next.Token
			of.deadline = stamp(next.Deadline)
		case "renewed":
			of.deadline = stamp(next.Deadline)
		case "releasing", "lost":
			of.end = min(of.end, at)
		}
	}
	for _, of := range attempts {
		of.end = min(of.end, of.deadline)
	}
	return attempts, epsilon, nil
}
