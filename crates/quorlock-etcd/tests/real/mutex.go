// mutex ENDPOINTS NAME SESSIONS SECTIONS COUNTER LOG: critical sections under etcd's own concurrency.Mutex.
//
// Each section adds one to the number in COUNTER by reading and writing it, and appends its create revision to LOG.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func section(client *clientv3.Client, mutex *concurrency.Mutex, counter string, sections *os.File) {
	text := must(os.ReadFile(counter))
	number := must(strconv.Atoi(strings.TrimSpace(string(text))))
	own := must(client.Get(context.Background(), mutex.Key()))
	must(0, os.WriteFile(counter, []byte(strconv.Itoa(number+1)), 0o600))
	fmt.Fprintf(sections, "%d go\n", own.Kvs[0].CreateRevision)
}

func main() {
	arguments := os.Args[1:]
	sessions, sections := must(strconv.Atoi(arguments[2])), must(strconv.Atoi(arguments[3]))
	config := clientv3.Config{Endpoints: strings.Split(arguments[0], ","), DialTimeout: 10 * time.Second}
	client := must(clientv3.New(config))
	file := must(os.OpenFile(arguments[5], os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600))
	var left atomic.Int64
	left.Store(int64(sections))
	var all sync.WaitGroup
	var guard sync.Mutex
	var waits []float64
	for range sessions {
		all.Go(func() {
			session := must(concurrency.NewSession(client, concurrency.WithTTL(30)))
			defer session.Close()
			for left.Add(-1) >= 0 {
				mutex, asked := concurrency.NewMutex(session, arguments[1]), time.Now()
				must(0, mutex.Lock(context.Background()))
				waited := time.Since(asked).Seconds() * 1e3
				section(client, mutex, arguments[4], file)
				must(0, mutex.Unlock(context.Background()))
				guard.Lock()
				waits = append(waits, waited)
				guard.Unlock()
			}
		})
	}
	all.Wait()
	sort.Float64s(waits)
	fmt.Printf("%d %.2f %.2f\n", len(waits), waits[len(waits)/2], waits[len(waits)*99/100])
}
