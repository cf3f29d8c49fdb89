// Drives redsync. README.md describes the protocol.
package main

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredislib "github.com/redis/go-redis/v9"
)

func main() {
	goredislib.SetLogger(silence{})
	var pools []redis.Pool
	for _, node := range os.Args[1:] {
		options, err := goredislib.ParseURL(node)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		pools = append(pools, goredis.NewPool(goredislib.NewClient(options)))
	}
	d := driver{redsync.New(pools...), map[string]*redsync.Mutex{}}
	fmt.Println("ready " + versions())
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		answer, err := d.obey(words[0], words[1], words[2:]...)
		if err != nil {
			answer = "refused " + strings.ReplaceAll(err.Error(), "\n", " ")
		}
		fmt.Println(answer)
	}
}

type driver struct {
	*redsync.Redsync
	held map[string]*redsync.Mutex
}

func (d driver) obey(verb, resource string, ttl ...string) (string, error) {
	var options []redsync.Option
	if len(ttl) == 1 {
		millis, err := strconv.Atoi(ttl[0])
		if err != nil {
			return "", err
		}
		options = append(options, redsync.WithExpiry(time.Duration(millis)*time.Millisecond))
	}
	mutex := d.held[resource]
	switch {
	case verb == "acquire":
		mutex = d.NewMutex(resource, options...)
		if err := mutex.TryLock(); err != nil {
			return "", err
		}
		d.held[resource] = mutex
		return "acquired " + hex.EncodeToString([]byte(mutex.Value())), nil
	case mutex == nil:
		return "", errors.New("no such lock")
	case verb == "extend":
		// A mutex extends itself by its own expiry; another mutex with the same value can extend by another.
		mutex = d.NewMutex(resource, append(options, redsync.WithValue(mutex.Value()))...)
		return said("extended", mutex.Extend)
	case verb == "release":
		delete(d.held, resource)
		return said("released", mutex.Unlock)
	default:
		return "", fmt.Errorf("%s is none of acquire, extend and release", verb)
	}
}

func said(yes string, do func() (bool, error)) (string, error) {
	ok, err := do()
	if err == nil && !ok {
		err = errors.New("it said no")
	}
	return yes, err
}

// versions names the modules that this was built from.
func versions() string {
	parts := []string{"github.com/go-redsync/redsync/v4", "github.com/redis/go-redis/v9"}
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

// The client logs each lost connection to stderr.
type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}
