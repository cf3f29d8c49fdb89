// Drives redsync, rueidislock and etcd. The protocol is described in src/order.rs.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

type order struct {
	Work       string `json:"work"`
	Tasks      int    `json:"tasks"`
	Millis     int64  `json:"millis"`
	HoldMillis int64  `json:"hold_millis"`
	TTLMillis  int64  `json:"ttl_millis"`
	Name       string `json:"name"`
}

type findings struct {
	Count    int     `json:"count"`
	All      int     `json:"all"`
	Failures int64   `json:"failures"`
	Overlaps int64   `json:"overlaps"`
	Micros   int64   `json:"micros"`
	P50      int64   `json:"p50"`
	P99      int64   `json:"p99"`
	Grants   [][]int64 `json:"grants"`
}

// peer waits until the task holds the lock, and returns the function that releases it.
type peer interface {
	acquire(ctx context.Context, task int, name string, ttl time.Duration) (release func() error, err error)
}

func main() {
	subject, addresses := os.Args[1], os.Args[2:]
	connect := map[string]func([]string) (peer, error){
		"redsync":           func(nodes []string) (peer, error) { return newRedsync(nodes, false) },
		"redsync-fail-fast": func(nodes []string) (peer, error) { return newRedsync(nodes, true) },
		"rueidislock":       newRueidislock,
		"etcd":              newEtcd,
	}[subject]
	if connect == nil {
		fail(fmt.Errorf("there is no subject %s in Go", subject))
	}
	peer, err := connect(addresses)
	if err != nil {
		fail(err)
	}
	answer := json.NewEncoder(os.Stdout)
	answer.Encode(map[string]string{"version": versions(subject)})
	orders := bufio.NewScanner(os.Stdin)
	for orders.Scan() {
		var o order
		if err := json.Unmarshal(orders.Bytes(), &o); err != nil {
			fail(err)
		}
		if o.Work == "cycles" {
			answer.Encode(cycles(peer, o))
		} else {
			answer.Encode(contend(peer, o))
		}
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// versions names the modules that a subject was built from.
func versions(subject string) string {
	redsync := []string{"github.com/go-redsync/redsync/v4", "github.com/redis/go-redis/v9"}
	parts := map[string][]string{
		"redsync":           redsync,
		"redsync-fail-fast": redsync,
		"rueidislock":       {"github.com/redis/rueidis"},
		"etcd":              {"go.etcd.io/etcd/client/v3"},
	}[subject]
	all := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if slices.Contains(parts, module.Path) {
				all += fmt.Sprintf("%s %s, ", module.Path, module.Version)
			}
		}
	}
	return all + "Go " + runtime.Version()[2:]
}

func cycles(p peer, o order) findings {
	start := time.Now()
	end := start.Add(time.Duration(o.Millis) * time.Millisecond)
	times := make([][]int64, o.Tasks)
	var failures atomic.Int64
	each(o.Tasks, func(task int) {
		number := 0
		for began := time.Now(); began.Before(end); began = time.Now() {
			name := fmt.Sprintf("%s/%d/%d", o.Name, task, number)
			number++
			release, err := p.acquire(context.Background(), task, name, o.ttl())
			if err == nil {
				err = release()
			}
			if err != nil {
				failures.Add(1)
				continue
			}
			times[task] = append(times[task], time.Since(began).Microseconds())
		}
	})
	all := slices.Concat(times...)
	f := findings{Count: len(all), All: len(all), Failures: failures.Load(), Grants: [][]int64{}}
	f.Micros = time.Since(start).Microseconds()
	f.P50, f.P99 = quantiles(all)
	return f
}

func contend(p peer, o order) findings {
	start := time.Now()
	timed := o.Work == "contend"
	end := start
	if timed {
		end = start.Add(time.Duration(o.Millis) * time.Millisecond)
	}
	var held atomic.Bool
	var ended, late, failures, overlaps atomic.Int64
	handOvers := make([][]int64, o.Tasks)
	grants := make([][]int64, o.Tasks)
	each(o.Tasks, func(task int) {
		for {
			release, err := p.acquire(context.Background(), task, o.Name, o.ttl())
			if err != nil {
				failures.Add(1)
				continue
			}
			if timed && time.Now().After(end) {
				late.Add(1)
				release()
				return
			}
			grants[task] = append(grants[task], time.Now().UnixMicro())
			if held.Swap(true) {
				overlaps.Add(1)
			}
			if last := ended.Load(); last != 0 {
				handOvers[task] = append(handOvers[task], time.Since(start).Microseconds()-last)
			}
			time.Sleep(time.Duration(o.HoldMillis) * time.Millisecond)
			ended.Store(time.Since(start).Microseconds())
			held.Store(false)
			if release() != nil {
				failures.Add(1)
			}
			if time.Now().After(end) {
				return
			}
		}
	})
	f := findings{Failures: failures.Load(), Overlaps: overlaps.Load(), Grants: grants, Micros: o.Millis * 1000}
	if !timed {
		f.Micros = time.Since(start).Microseconds()
	}
	for task, began := range grants {
		if began == nil {
			grants[task] = []int64{}
		}
		f.Count += len(began)
	}
	f.All = f.Count + int(late.Load())
	f.P50, f.P99 = quantiles(slices.Concat(handOvers...))
	return f
}

func (o order) ttl() time.Duration { return time.Duration(o.TTLMillis) * time.Millisecond }

func each(tasks int, run func(task int)) {
	var all sync.WaitGroup
	for task := range tasks {
		all.Go(func() { run(task) })
	}
	all.Wait()
}

func quantiles(times []int64) (p50, p99 int64) {
	if len(times) == 0 {
		return 0, 0
	}
	slices.Sort(times)
	return times[len(times)/2], times[len(times)*99/100]
}
