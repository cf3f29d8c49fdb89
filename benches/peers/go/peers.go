package main

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredislib "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// The highest number of concurrent tasks.
const mostTasks = 64

// With failFast it returns when a quorum has answered alike, without waiting for the other servers.
type redsyncPeer struct {
	*redsync.Redsync
	failFast bool
}

func newRedsync(nodes []string, failFast bool) (peer, error) {
	var pools []redis.Pool
	for _, node := range nodes {
		options, err := goredislib.ParseURL(node)
		if err != nil {
			return nil, err
		}
		pools = append(pools, goredis.NewPool(goredislib.NewClient(options)))
	}
	return redsyncPeer{redsync.New(pools...), failFast}, nil
}

// Its own delays between attempts (50 to 250 ms), without a limit on the number of attempts.
func (p redsyncPeer) acquire(ctx context.Context, _ int, name string, ttl time.Duration) (func() error, error) {
	mutex := p.NewMutex(name,
		redsync.WithExpiry(ttl), redsync.WithTries(1_000_000), redsync.WithFailFast(p.failFast))
	if err := mutex.LockContext(ctx); err != nil {
		return nil, err
	}
	return func() error {
		ok, err := mutex.UnlockContext(ctx)
		if err == nil && !ok {
			err = fmt.Errorf("%s was not held any more", name)
		}
		return err
	}, nil
}

type rueidislockPeer struct{ rueidislock.Locker }

// It locks on one server or cluster, using a majority of three keys there.
func newRueidislock(nodes []string) (peer, error) {
	node, err := url.Parse(nodes[0])
	if err != nil {
		return nil, err
	}
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{node.Host}},
		KeyValidity:  10 * time.Second,
		// As its documentation recommends for servers from 7.0.5 on.
		NoLoopTracking: true,
	})
	return rueidislockPeer{locker}, err
}

func (p rueidislockPeer) acquire(ctx context.Context, _ int, name string, _ time.Duration) (func() error, error) {
	_, cancel, err := p.WithContext(ctx, name)
	return func() error { cancel(); return nil }, err
}

// A mutex of etcd belongs to a session, so each task has its own.
type etcdPeer struct{ sessions []*concurrency.Session }

func newEtcd(endpoints []string) (peer, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 5 * time.Second})
	if err != nil {
		return nil, err
	}
	p := etcdPeer{}
	for range mostTasks {
		session, err := concurrency.NewSession(client, concurrency.WithTTL(10))
		if err != nil {
			return nil, err
		}
		p.sessions = append(p.sessions, session)
	}
	return p, nil
}

func (p etcdPeer) acquire(ctx context.Context, task int, name string, _ time.Duration) (func() error, error) {
	mutex := concurrency.NewMutex(p.sessions[task], name+"/")
	if err := mutex.Lock(ctx); err != nil {
		return nil, err
	}
	return func() error { return mutex.Unlock(ctx) }, nil
}
