-- The schema of quorlock in a PostgreSQL database.
--
-- Where the user of the locks may not create a schema, run it as the future owner, and then:
--   GRANT USAGE ON SCHEMA quorlock TO app;
--   GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA quorlock TO app;
-- For another version of quorlock run its script as well: it adds what is missing.
--
-- The layout, with the version in `meta`, is shared by programs of several versions: the tables, what their rows mean, the
-- triggers, and the notifications. The functions are not. Each version brings its own and calls no others, since their
-- names begin with the digest of their text.
--
-- Times are microseconds since 1970 by the clock of this server.
DO $do$
DECLARE
    -- `RULES` in `lib.rs`. After a change of a function the error of a node names the new digest; if rows or notifications
    -- mean something else, the layout has another version.
    own text := 'vfeb0e14a_';
    caller text := pg_catalog.current_setting('role');
BEGIN
IF pg_catalog.to_regnamespace('quorlock') IS NULL THEN
CREATE SCHEMA quorlock;

-- One row per lock used in the last minutes. The columns that change have no index, and half of each page is
-- left free, so that updates stay within their page (HOT).
CREATE TABLE quorlock.locks (
    key bytea PRIMARY KEY,
    -- Null if the lock is free; 'quorlock:shared' if readers hold it.
    token bytea,
    -- Null if the token never expires.
    expires bigint,
    -- The fencing token of the holder, if it is another than the number in the token.
    number bigint,
    -- 1: notify clients outside the queue when the lock is released. 2: also report this to the holder.
    wanted smallint NOT NULL DEFAULT 0,
    -- Whether the queue may have waiters.
    queued boolean NOT NULL DEFAULT false,
    -- When the first waiter was last notified that it is its turn.
    told bigint,
    -- When a client last released the lock. A change by hand does not update it.
    released bigint,
    -- Until when this key has tombstones.
    buried bigint
) WITH (fillfactor = 50);

-- The counters of fencing tokens. All locks of a hash slot below a key prefix share one, and it never expires.
CREATE TABLE quorlock.counters (
    key bytea PRIMARY KEY,
    -- The largest number so far.
    counter bigint NOT NULL
) WITH (fillfactor = 50);

-- Cancelled attempts, whose late requests are refused.
CREATE TABLE quorlock.tombstones (
    key bytea,
    attempt bytea,
    expires bigint NOT NULL,
    PRIMARY KEY (key, attempt)
);

-- The readers of shared locks.
CREATE TABLE quorlock.readers (
    key bytea,
    attempt bytea,
    token bytea NOT NULL,
    expires bigint NOT NULL,
    PRIMARY KEY (key, attempt)
);

-- Writers that wait for the readers of a shared lock.
CREATE TABLE quorlock.intents (
    key bytea,
    waiter bytea,
    expires bigint NOT NULL,
    PRIMARY KEY (key, waiter)
);

-- The waiters in the queues of locks.
CREATE TABLE quorlock.waiters (
    key bytea,
    waiter bytea,
    -- A notification with this key means that it is this waiter's turn.
    turn_key bytea NOT NULL,
    -- The channel on which the waiter's client listens.
    channel text NOT NULL,
    -- When the wait began.
    since bigint NOT NULL,
    -- When the entry expires unless the waiter asks again.
    expires bigint NOT NULL,
    -- Identifies the waiter's process.
    context bytea NOT NULL,
    PRIMARY KEY (key, waiter)
) WITH (fillfactor = 50);

-- One row: the note by which clients see whether this is the data that they knew. Its place is what a copy does not
-- carry and a restore changes.
CREATE TABLE quorlock.history (
    one boolean PRIMARY KEY CHECK (one),
    -- The random name of this history, and since when it is known.
    name text NOT NULL,
    since bigint NOT NULL,
    place text NOT NULL,
    -- The transaction that wrote the row, as in its xmin: a row that was restored has another one.
    writer xid NOT NULL
);

-- The largest max_ttl of the clients with keys of a prefix, in milliseconds.
CREATE TABLE quorlock.max_ttls (
    prefix bytea PRIMARY KEY,
    millis bigint NOT NULL,
    expires bigint NOT NULL
);

-- One row: the schema version, and where the last sweep for expired rows stopped.
CREATE TABLE quorlock.meta (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    version int NOT NULL,
    swept bytea NOT NULL
);
INSERT INTO quorlock.meta (version, swept) VALUES (1, '');

-- For administrators: the locks that are held.
CREATE VIEW quorlock.held AS
    SELECT encode(key, 'escape') AS key,
        encode(substr(token, 34), 'escape') AS holder,
        to_timestamp(expires / 1e6) AS expires,
        COALESCE(number, substring(encode(substr(token, 1, 64), 'escape') FROM '^[0-9a-f]+:([0-9]{1,16}) ')::bigint)
            AS fencing_token
    FROM quorlock.locks
    WHERE token IS NOT NULL AND (expires IS NULL OR expires > extract(epoch FROM clock_timestamp()) * 1e6);

-- Notifies waiters when a lock is freed by hand. A release does its own notification.
CREATE FUNCTION quorlock.notify() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pg_notify('quorlock', encode(OLD.key, 'hex'));
    RETURN NULL;
END $$;
CREATE TRIGGER freed AFTER UPDATE ON quorlock.locks FOR EACH ROW
    WHEN (OLD.token IS NOT NULL AND NEW.token IS NULL AND NEW.released IS NOT DISTINCT FROM OLD.released)
    EXECUTE FUNCTION quorlock.notify();
CREATE TRIGGER deleted AFTER DELETE ON quorlock.locks FOR EACH ROW
    WHEN (OLD.token IS NOT NULL) EXECUTE FUNCTION quorlock.notify();
END IF;

IF NOT EXISTS (
    SELECT FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
    WHERE n.nspname = 'quorlock' AND p.proname = own || 'clock'
) THEN
-- Clients refuse functions of another owner.
PERFORM pg_catalog.set_config('role', pg_catalog.pg_get_userbyid(nspowner)::text, true)
FROM pg_catalog.pg_namespace WHERE nspname = 'quorlock';
-- `rules.` stands for the schema and the digest.
EXECUTE pg_catalog.replace($functions$
-- Not now(), which is the start of the transaction: the clock must be read after waiting for a row. Not
-- extract(), which returns a slow numeric: a double is precise to a quarter of a microsecond for these times.
CREATE FUNCTION rules.clock() RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN date_part('epoch', clock_timestamp()) * 1e6;
END $$;

-- Returns the row of a key, created if missing, and locks it until the end of the transaction.
CREATE FUNCTION rules.row_of(k bytea) RETURNS quorlock.locks
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    l quorlock.locks;
BEGIN
    LOOP
        SELECT * INTO l FROM quorlock.locks WHERE key = k FOR NO KEY UPDATE;
        IF FOUND THEN
            RETURN l;
        END IF;
        INSERT INTO quorlock.locks (key) VALUES (k) ON CONFLICT DO NOTHING;
    END LOOP;
END $$;

-- Locks the rows of several keys, in the same order for all clients, so that no deadlock can occur.
CREATE FUNCTION rules.rows_of(ks bytea[], make boolean) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    k bytea;
BEGIN
    FOR k IN SELECT DISTINCT s FROM unnest(ks) AS s ORDER BY s LOOP
        IF make THEN
            PERFORM rules.row_of(k);
        ELSE
            PERFORM FROM quorlock.locks WHERE key = k FOR NO KEY UPDATE;
        END IF;
    END LOOP;
END $$;

-- Whether the row holds a token. A row with an expiry but no token was written by another program.
CREATE FUNCTION rules.is_held(l quorlock.locks, t bigint) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF l.token IS NULL AND l.expires > t THEN
        RAISE 'the row of the lock has an expiry but no token' USING ERRCODE = 'QL001';
    END IF;
    RETURN l.token IS NOT NULL AND (l.expires IS NULL OR l.expires > t);
END $$;

CREATE FUNCTION rules.is_cancelled(ks bytea[], tok bytea, t bigint) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM quorlock.tombstones WHERE key = ANY (ks) AND attempt = substr(tok, 1, 32) AND expires > t
    );
END $$;

-- Leaves a tombstone, and records it in the row of the key.
CREATE FUNCTION rules.bury(k bytea, tok bytea, until bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO quorlock.tombstones VALUES (k, substr(tok, 1, 32), until)
    ON CONFLICT (key, attempt) DO UPDATE SET expires = GREATEST(tombstones.expires, EXCLUDED.expires);
    UPDATE quorlock.locks SET buried = GREATEST(buried, until) WHERE key = k;
END $$;

-- Returns the value of the counter, or raises if no number can be drawn from it.
CREATE FUNCTION rules.usable(counter bigint) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF counter < 0 OR counter >= 9007199254740991 THEN
        RAISE 'the fencing counter is exhausted or not a number' USING ERRCODE = 'QL002';
    END IF;
    RETURN COALESCE(counter, 0);
END $$;

-- Returns the largest of the counters, or raises if no number can be drawn from one of them; null if there is none.
CREATE FUNCTION rules.largest(cs bytea[]) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN (SELECT NULLIF(max(rules.usable(c.counter)), 0) FROM quorlock.counters c WHERE c.key = ANY (cs));
END $$;

-- Raises the counters to a number, and none lowers. In the same order for all clients, and after they have locked the
-- rows of their locks, so that no deadlock can occur.
CREATE FUNCTION rules.raise_to(cs bytea[], num bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO quorlock.counters AS c SELECT DISTINCT s, num FROM unnest(cs) AS s ORDER BY s
    ON CONFLICT (key) DO UPDATE SET counter = GREATEST(rules.usable(c.counter), EXCLUDED.counter);
END $$;

-- Draws the next number: one more than the larger of counter and hint. If that is further ahead of the clock than the
-- lead, the clock takes its place (rules F-1, F-7).
CREATE FUNCTION rules.draw(cs bytea[], hint bigint, lead bigint) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    t bigint := rules.clock();
    least bigint := CASE WHEN hint > t + lead THEN t ELSE hint END;
    drawn bigint;
BEGIN
    IF cardinality(cs) > 1 THEN
        -- Locks the rows first.
        PERFORM rules.raise_to(cs, 0);
        drawn := GREATEST(rules.largest(cs), least) + 1;
        PERFORM rules.raise_to(cs, drawn);
        RETURN drawn;
    END IF;
    INSERT INTO quorlock.counters AS c VALUES (cs[1], least + 1)
    ON CONFLICT (key) DO UPDATE SET counter = GREATEST(rules.usable(c.counter) + 1, EXCLUDED.counter)
    RETURNING counter INTO drawn;
    RETURN drawn;
END $$;

-- Records that a client wants a lock. Losing this in a crash costs only time, so it does not wait for the
-- disk.
CREATE FUNCTION rules.want(k bytea, mark int) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    UPDATE quorlock.locks SET wanted = mark WHERE key = k AND wanted < mark;
END $$;

-- The answer to every request. Votes: 0 granted, 1 free, 2 held, 3 behind a writer, 4 restored, 5 ahead, 6
-- wanted, 7 the next waiter was notified, 8 queued (`number` waiters ahead), 9 the queue.
CREATE TYPE rules.answer AS (
    vote int,
    number bigint,
    holder bytea,
    remaining bigint,
    place bytea,
    readers bytea[],
    waited bigint[]
);

CREATE FUNCTION rules.refused(l quorlock.locks, t bigint) RETURNS rules.answer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN ROW(2, l.number, l.token, l.expires - t, l.key, NULL, NULL)::rules.answer;
END $$;

-- The counters are in the order of the locks.
CREATE FUNCTION rules.acquire(ks bytea[], cs bytea[], tok bytea, ttl bigint, hint bigint, lead bigint)
RETURNS rules.answer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    k bytea;
    l quorlock.locks;
    t bigint;
    -- A client that wants one lock waits in its queue. One that wants several is notified of each release.
    mark int := CASE WHEN cardinality(ks) = 1 THEN 0 ELSE 2 END;
BEGIN
    -- The fast path in one statement: the lock is free and has no tombstone. After a wait for the row, all
    -- conditions and the clock are evaluated again.
    IF mark = 0 THEN
        UPDATE quorlock.locks SET
            token = tok,
            expires = (date_part('epoch', clock_timestamp()) * 1e6)::bigint + ttl,
            number = NULL
        WHERE key = ks[1]
            AND CASE
                WHEN token IS NULL THEN expires IS NULL
                ELSE expires <= date_part('epoch', clock_timestamp()) * 1e6
            END
            AND (buried IS NULL OR buried <= date_part('epoch', clock_timestamp()) * 1e6);
        IF FOUND THEN
            RETURN rules.granted(ks, cs, tok, hint, lead);
        END IF;
    END IF;
    -- Refused requests only read, and write only if the lock is not yet marked as wanted.
    FOREACH k IN ARRAY ks LOOP
        SELECT * INTO l FROM quorlock.locks WHERE key = k;
        IF NOT FOUND AND mark = 0 THEN
            -- First use. Without a row there is no tombstone.
            INSERT INTO quorlock.locks (key, token, expires) VALUES (k, tok, rules.clock() + ttl) ON CONFLICT DO NOTHING;
            IF FOUND THEN
                RETURN rules.granted(ks, cs, tok, hint, lead);
            END IF;
        ELSIF FOUND AND l.wanted >= mark AND l.token <> tok THEN
            t := rules.clock();
            IF rules.is_held(l, t) THEN
                IF rules.is_cancelled(ks, tok, t) THEN
                    RETURN ROW(1, NULL, NULL, NULL, NULL, NULL, NULL)::rules.answer;
                END IF;
                RETURN rules.refused_at(l, t, cs, ks);
            END IF;
        END IF;
    END LOOP;
    IF cardinality(ks) > 1 THEN
        PERFORM rules.rows_of(ks, true);
    END IF;
    FOREACH k IN ARRAY ks LOOP
        l := rules.row_of(k);
        t := rules.clock();
        IF rules.is_held(l, t) AND l.token <> tok THEN
            IF rules.is_cancelled(ks, tok, t) THEN
                RETURN ROW(1, NULL, NULL, NULL, NULL, NULL, NULL)::rules.answer;
            END IF;
            IF mark > 0 THEN
                PERFORM rules.want(k, mark);
            END IF;
            RETURN rules.refused_at(l, t, cs, ks);
        END IF;
    END LOOP;
    IF rules.is_cancelled(ks, tok, t) THEN
        RETURN ROW(1, NULL, NULL, NULL, NULL, NULL, NULL)::rules.answer;
    END IF;
    UPDATE quorlock.locks SET
        expires = CASE WHEN token = tok AND (expires IS NULL OR expires > t) THEN expires ELSE t + ttl END,
        token = tok,
        number = NULL
    WHERE key = ANY (ks);
    RETURN rules.granted(ks, cs, tok, hint, lead);
END $$;

-- Returns the holder, and the counter of that lock.
CREATE FUNCTION rules.refused_at(l quorlock.locks, t bigint, cs bytea[], ks bytea[]) RETURNS rules.answer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    a rules.answer := rules.refused(l, t);
BEGIN
    a.number := rules.largest(ARRAY[cs[array_position(ks, l.key)]]);
    RETURN a;
END $$;

-- Draws the number of a token that was just stored.
CREATE FUNCTION rules.granted(ks bytea[], cs bytea[], tok bytea, hint bigint, lead bigint) RETURNS rules.answer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    drawn bigint;
BEGIN
    IF hint IS NOT NULL THEN
        drawn := rules.draw(cs, hint, lead);
        -- As a rule it is the number in the token.
        IF position(convert_to(':' || drawn || ' ', 'UTF8') IN tok) <> 33 THEN
            UPDATE quorlock.locks SET number = drawn WHERE key = ANY (ks) AND token = tok;
        END IF;
    END IF;
    RETURN ROW(0, drawn, NULL, NULL, NULL, NULL, NULL)::rules.answer;
END $$;

CREATE FUNCTION rules.renew(ks bytea[], cs bytea[], tok bytea, ttl bigint, num bigint) RETURNS rules.answer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    k bytea;
    l quorlock.locks;
    t bigint;
    any_free boolean := false;
BEGIN
    IF cardinality(ks) > 1 THEN
        PERFORM rules.rows_of(ks, true);
    END IF;
    FOREACH k IN ARRAY ks LOOP
        l := rules.row_of(k);
        t := rules.clock();
        IF NOT rules.is_held(l, t) THEN
            any_free := true;
        ELSIF l.token <> tok THEN
            RETURN rules.refused(l, t);
        END IF;
    END LOOP;
    IF NOT any_free THEN
        UPDATE quorlock.locks SET expires = t + ttl
        WHERE key = ANY (ks) AND (expires IS NULL OR expires < t + ttl);
        RETURN ROW(0, NULL, NULL, NULL, NULL, NULL, NULL)::rules.answer;
    END IF;
    IF rules.is_cancelled(ks, tok, t) THEN
        RETURN ROW(1, NULL, NULL, NULL, NULL, NULL, NULL)::rules.answer;
    END IF;
    UPDATE quorlock.locks SET
        expires = CASE
            WHEN token = tok AND expires > t THEN GREATEST(expires, t + ttl)
            ELSE t + ttl
        END,
        token = tok,
        number = num
    WHERE key = ANY (ks);
    IF num IS NOT NULL THEN
        PERFORM rules.raise_to(cs, num);
    END IF;
    RETURN ROW(4, NULL, NULL, NULL, NULL, NULL, NULL)::rules.answer;
END $$;

CREATE FUNCTION rules.transfer(
    k bytea, c bytea, from_tok bytea, tok bytea, ttl bigint, hint bigint, lead bigint
) RETURNS rules.answer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    l quorlock.locks := rules.row_of(k);
    t bigint := rules.clock();
    held boolean := rules.is_held(l, t);
    a rules.answer;
BEGIN
    IF rules.is_cancelled(ARRAY[k], tok, t) THEN
        RETURN ROW(1, NULL, NULL, NULL, NULL, NULL, NULL)::rules.answer;
    END IF;
    IF held AND l.token = tok THEN
        UPDATE quorlock.locks SET expires = GREATEST(expires, t + ttl) WHERE key = k;
    ELSIF held AND l.token <> from_tok THEN
        RETURN rules.refused_at(l, t, ARRAY[c], ARRAY[k]);
    ELSE
        UPDATE quorlock.locks SET token = tok, expires = t + ttl, number = NULL WHERE key = k;
    END IF;
    a := rules.granted(ARRAY[k], ARRAY[c], tok, hint, lead);
    IF NOT held THEN
        a.vote := 4;
    END IF;
    RETURN a;
END $$;

-- Notifies the first waiter that has asked recently, and removes it from the queue.
CREATE FUNCTION rules.tell_next(k bytea, t bigint) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    w quorlock.waiters;
BEGIN
    LOOP
        SELECT * INTO w FROM quorlock.waiters WHERE key = k ORDER BY since, waiter LIMIT 1;
        IF NOT FOUND THEN
            RETURN false;
        END IF;
        DELETE FROM quorlock.waiters WHERE key = k AND waiter = w.waiter;
        IF w.expires > t THEN
            PERFORM pg_notify(w.channel, encode(w.turn_key, 'hex'));
            RETURN true;
        END IF;
    END LOOP;
END $$;

-- Frees a lock whose row is locked, and notifies its waiters. Returns the vote.
CREATE FUNCTION rules.free(l quorlock.locks, t bigint) RETURNS int
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    turn boolean := l.queued AND rules.tell_next(l.key, t);
BEGIN
    UPDATE quorlock.locks SET token = NULL, expires = NULL, number = NULL, wanted = 0, released = t, queued = turn,
        told = CASE WHEN turn THEN t END
    WHERE key = l.key;
    IF l.wanted > 0 THEN
        PERFORM pg_notify('quorlock', encode(l.key, 'hex'));
    END IF;
    RETURN CASE WHEN l.wanted = 2 AND NOT turn THEN 6 WHEN turn THEN 7 ELSE 0 END;
END $$;

-- Does not wait for the disk: if a crash undoes the release, the lock stays until its TTL expires. A later
-- grant does wait, and flushes everything before it.
CREATE FUNCTION rules.release(ks bytea[], tok bytea) RETURNS rules.answer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    k bytea;
    l quorlock.locks;
    t bigint;
    v int;
    was int := 1;
BEGIN
    IF cardinality(ks) > 1 THEN
        PERFORM rules.rows_of(ks, false);
    END IF;
    PERFORM set_config('synchronous_commit', 'off', true);
    IF cardinality(ks) = 1 THEN
        UPDATE quorlock.locks SET token = NULL, expires = NULL, number = NULL, told = NULL,
            released = date_part('epoch', clock_timestamp()) * 1e6
        WHERE key = ks[1] AND token = tok AND expires > date_part('epoch', clock_timestamp()) * 1e6
            AND wanted = 0 AND NOT queued;
        IF FOUND THEN
            RETURN ROW(0, NULL, NULL, NULL, NULL, NULL, NULL)::rules.answer;
        END IF;
    END IF;
    FOREACH k IN ARRAY ks LOOP
        SELECT * INTO l FROM quorlock.locks WHERE key = k FOR NO KEY UPDATE;
        CONTINUE WHEN NOT FOUND;
        t := rules.clock();
        -- Of several keys, those held by this token are freed, whatever the others hold.
        CONTINUE WHEN cardinality(ks) > 1 AND l.token IS NULL;
        CONTINUE WHEN NOT rules.is_held(l, t) OR l.token <> tok;
        v := rules.free(l, t);
        IF v = 6 OR v = 7 AND was <> 6 OR was = 1 THEN
            was := v;
        END IF;
    END LOOP;
    RETURN ROW(was, NULL, NULL, NULL, NULL, NULL, NULL)::rules.answer;
END $$;

CREATE FUNCTION rules.cancel(ks bytea[], tok bytea, linger bigint) RETURNS rules.answer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    a rules.answer;
    l quorlock.locks;
    t bigint;
BEGIN
    -- A late request waits for these rows, and then finds the tombstone.
    PERFORM rules.rows_of(ks, true);
    SELECT * INTO l FROM quorlock.locks WHERE key = ks[1];
    t := rules.clock();
    IF cardinality(ks) = 1 AND l.queued AND rules.is_held(l, t) AND l.token = tok THEN
        -- An attempt that is undone is no waiter's turn (rule W-8): waiters are notified only that the lock has changed.
        UPDATE quorlock.locks SET token = NULL, expires = NULL, number = NULL, wanted = 0, released = t WHERE key = l.key;
        PERFORM pg_notify('quorlock', encode(l.key, 'hex'));
        a.vote := 0;
    ELSE
        a := rules.release(ks, tok);
    END IF;
    PERFORM rules.bury(ks[1], tok, rules.clock() + linger);
    IF a.vote > 1 THEN
        a.vote := 0;
    END IF;
    RETURN a;
END $$;

-- Raises the counters to an attempt's number, if all locks are still its own, or it still shares the one (rule F-4), and
-- all counters are below (rule F-5).
CREATE FUNCTION rules.write_back(ks bytea[], cs bytea[], tok bytea, num bigint) RETURNS rules.answer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    k bytea;
    l quorlock.locks;
    t bigint;
    stands bigint;
BEGIN
    IF cardinality(ks) > 1 THEN
        PERFORM rules.rows_of(ks, false);
    END IF;
    FOREACH k IN ARRAY ks LOOP
        SELECT * INTO l FROM quorlock.locks WHERE key = k FOR NO KEY UPDATE;
        t := rules.clock();
        IF l.key IS NULL OR NOT rules.is_held(l, t) THEN
            RETURN ROW(1, NULL, NULL, NULL, NULL, NULL, NULL)::rules.answer;
        ELSIF l.token <> tok AND NOT (l.token = 'quorlock:shared' AND EXISTS (
            SELECT FROM quorlock.readers r WHERE r.key = k AND r.token = tok AND r.expires > t
        )) THEN
            IF l.token = 'quorlock:shared' THEN
                RETURN ROW(1, NULL, NULL, NULL, NULL, NULL, NULL)::rules.answer;
            END IF;
            RETURN rules.refused(l, t);
        END IF;
    END LOOP;
    PERFORM rules.raise_to(cs, 0);
    stands := rules.largest(cs);
    IF stands >= num THEN
        RETURN ROW(5, stands, NULL, NULL, NULL, NULL, NULL)::rules.answer;
    END IF;
    PERFORM rules.raise_to(cs, num);
    UPDATE quorlock.locks SET number = num WHERE key = ANY (ks) AND token = tok;
    RETURN ROW(0, num, NULL, NULL, NULL, NULL, NULL)::rules.answer;
END $$;

CREATE FUNCTION rules.inspect(k bytea, c bytea) RETURNS rules.answer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    l quorlock.locks;
    t bigint;
    a rules.answer;
    stands bigint := (SELECT counter FROM quorlock.counters WHERE key = c AND counter BETWEEN 1 AND 9007199254740991);
BEGIN
    SELECT * INTO l FROM quorlock.locks WHERE key = k;
    t := rules.clock();
    IF l.key IS NULL OR NOT rules.is_held(l, t) THEN
        RETURN ROW(1, stands, NULL, NULL, NULL, NULL, NULL)::rules.answer;
    END IF;
    a := rules.refused(l, t);
    -- As a rule its number is in the token, which the client reads.
    IF l.number IS NULL AND encode(substr(l.token, 1, 64), 'escape') !~ '^[0-9a-f]+:[0-9]' THEN
        a.number := stands;
    END IF;
    IF l.token = 'quorlock:shared' THEN
        SELECT array_agg(s.token) INTO a.readers FROM (
            SELECT r.token FROM quorlock.readers r WHERE r.key = k AND r.expires > t ORDER BY r.expires, r.attempt LIMIT 100
        ) s;
    END IF;
    RETURN a;
END $$;

-- Adds a reader, unless the lock is held alone or a writer waits (`intents`): a reader that shares it already goes on.
CREATE FUNCTION rules.acquire_shared(k bytea, c bytea, tok bytea, ttl bigint, hint bigint, lead bigint)
RETURNS rules.answer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    l quorlock.locks := rules.row_of(k);
    t bigint := rules.clock();
    held boolean := rules.is_held(l, t);
    shared boolean := held AND l.token = 'quorlock:shared';
BEGIN
    IF rules.is_cancelled(ARRAY[k], tok, t) THEN
        RETURN ROW(1, NULL, NULL, NULL, NULL, NULL, NULL)::rules.answer;
    END IF;
    IF held AND NOT shared THEN
        PERFORM rules.want(k, 2);
        RETURN rules.refused_at(l, t, ARRAY[c], ARRAY[k]);
    END IF;
    IF NOT shared OR NOT EXISTS (
        SELECT FROM quorlock.readers r WHERE r.key = k AND r.attempt = substr(tok, 1, 32) AND r.expires > t
    ) THEN
        IF EXISTS (SELECT FROM quorlock.intents i WHERE i.key = k AND i.expires > t) THEN
            PERFORM rules.want(k, 1);
            RETURN ROW(3, rules.largest(ARRAY[c]), NULL, NULL, NULL, NULL, NULL)::rules.answer;
        END IF;
        PERFORM rules.share(k, tok, t + ttl, shared);
    END IF;
    -- Each reader draws a number, as a writer does.
    RETURN rules.granted(ARRAY[]::bytea[], ARRAY[c], tok, hint, lead);
END $$;

-- Adds the token as a reader; it is the only one if the lock was not shared.
CREATE FUNCTION rules.share(k bytea, tok bytea, until bigint, is_shared boolean) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT is_shared THEN
        DELETE FROM quorlock.readers WHERE key = k;
        UPDATE quorlock.locks SET token = 'quorlock:shared', expires = until, number = NULL WHERE key = k;
    ELSE
        UPDATE quorlock.locks SET expires = until WHERE key = k AND expires < until;
    END IF;
    INSERT INTO quorlock.readers VALUES (k, substr(tok, 1, 32), tok, until)
    ON CONFLICT (key, attempt) DO UPDATE SET expires = EXCLUDED.expires, token = EXCLUDED.token;
END $$;

CREATE FUNCTION rules.renew_shared(k bytea, c bytea, tok bytea, ttl bigint, num bigint) RETURNS rules.answer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    l quorlock.locks := rules.row_of(k);
    t bigint := rules.clock();
    held boolean := rules.is_held(l, t);
    shared boolean := held AND l.token = 'quorlock:shared';
    alone boolean := held AND l.token = tok;
    until bigint;
BEGIN
    IF held AND NOT shared AND NOT alone THEN
        RETURN rules.refused(l, t);
    END IF;
    IF shared THEN
        SELECT r.expires INTO until FROM quorlock.readers r
        WHERE r.key = k AND r.attempt = substr(tok, 1, 32) AND r.expires > t;
        IF FOUND THEN
            IF until < t + ttl THEN
                PERFORM rules.share(k, tok, t + ttl, true);
            END IF;
            RETURN ROW(0, NULL, NULL, NULL, NULL, NULL, NULL)::rules.answer;
        END IF;
    END IF;
    IF NOT alone AND rules.is_cancelled(ARRAY[k], tok, t) THEN
        RETURN ROW(1, NULL, NULL, NULL, NULL, NULL, NULL)::rules.answer;
    END IF;
    PERFORM rules.share(k, tok, CASE WHEN alone THEN GREATEST(l.expires, t + ttl) ELSE t + ttl END, shared);
    -- The next writer must get a larger number.
    IF num IS NOT NULL AND NOT alone THEN
        PERFORM rules.raise_to(ARRAY[c], num);
    END IF;
    RETURN ROW(CASE WHEN alone THEN 0 ELSE 4 END, NULL, NULL, NULL, NULL, NULL, NULL)::rules.answer;
END $$;

CREATE FUNCTION rules.release_shared(k bytea, tok bytea) RETURNS rules.answer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    l quorlock.locks;
    t bigint;
    last bigint;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    SELECT * INTO l FROM quorlock.locks WHERE key = k FOR NO KEY UPDATE;
    t := rules.clock();
    IF NOT FOUND OR NOT rules.is_held(l, t) THEN
        RETURN ROW(1, NULL, NULL, NULL, NULL, NULL, NULL)::rules.answer;
    END IF;
    IF l.token <> tok THEN
        IF l.token <> 'quorlock:shared' THEN
            RETURN ROW(1, NULL, NULL, NULL, NULL, NULL, NULL)::rules.answer;
        END IF;
        DELETE FROM quorlock.readers WHERE key = k AND attempt = substr(tok, 1, 32);
        IF NOT FOUND THEN
            RETURN ROW(1, NULL, NULL, NULL, NULL, NULL, NULL)::rules.answer;
        END IF;
        SELECT max(r.expires) INTO last FROM quorlock.readers r WHERE r.key = k AND r.expires > t;
        IF last IS NOT NULL THEN
            IF l.expires > last THEN
                UPDATE quorlock.locks SET expires = last WHERE key = k;
                -- Waiters that wait for the expiry can now wait for less.
                IF l.wanted > 0 THEN
                    PERFORM pg_notify('quorlock', encode(k, 'hex'));
                END IF;
            END IF;
            RETURN ROW(0, NULL, NULL, NULL, NULL, NULL, NULL)::rules.answer;
        END IF;
    END IF;
    RETURN ROW(rules.free(l, t), NULL, NULL, NULL, NULL, NULL, NULL)::rules.answer;
END $$;

CREATE FUNCTION rules.cancel_shared(k bytea, tok bytea, linger bigint) RETURNS rules.answer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    a rules.answer;
BEGIN
    PERFORM rules.row_of(k);
    a := rules.release_shared(k, tok);
    PERFORM rules.bury(k, tok, rules.clock() + linger);
    IF a.vote > 1 THEN
        a.vote := 0;
    END IF;
    RETURN a;
END $$;

CREATE FUNCTION rules.intend(k bytea, who bytea, patience bigint) RETURNS rules.answer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    INSERT INTO quorlock.intents VALUES (k, who, rules.clock() + patience)
    ON CONFLICT (key, waiter) DO UPDATE SET expires = EXCLUDED.expires;
    RETURN ROW(0, NULL, NULL, NULL, NULL, NULL, NULL)::rules.answer;
END $$;

CREATE FUNCTION rules.desist(k bytea, who bytea) RETURNS rules.answer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    -- A reader that has seen the intent is refused first, and then counted among those that want the lock.
    PERFORM rules.row_of(k);
    DELETE FROM quorlock.intents WHERE key = k AND waiter = who;
    IF NOT FOUND THEN
        RETURN ROW(1, NULL, NULL, NULL, NULL, NULL, NULL)::rules.answer;
    END IF;
    -- Waiters that want to share the lock may now do so.
    PERFORM FROM quorlock.locks WHERE key = k AND wanted > 0;
    IF FOUND THEN
        PERFORM pg_notify('quorlock', encode(k, 'hex'));
    END IF;
    RETURN ROW(0, NULL, NULL, NULL, NULL, NULL, NULL)::rules.answer;
END $$;

-- Enqueues a waiter, unless the lock is free and no turn has begun recently. The first two waiters learn the
-- holder.
CREATE FUNCTION rules.enqueue(
    k bytea, who bytea, of_turn_key bytea, of_channel text, elapsed bigint, patience bigint, turn bigint, of_context bytea
) RETURNS rules.answer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    l quorlock.locks := rules.row_of(k);
    t bigint := rules.clock();
    held boolean := rules.is_held(l, t);
    ahead bigint;
    a rules.answer;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    -- Others wait for twice the time: the first may be one that cannot take the lock yet, and asks once each turn.
    IF NOT held AND (l.told IS NULL OR t - l.told >= turn * CASE WHEN EXISTS (
        SELECT FROM quorlock.waiters w WHERE w.key = k AND (w.since, w.waiter) < (t - elapsed, who) AND w.expires > t
    ) THEN 2 ELSE 1 END) THEN
        DELETE FROM quorlock.waiters WHERE key = k AND waiter = who;
        UPDATE quorlock.locks SET told = t WHERE key = k;
        RETURN ROW(1, NULL, NULL, NULL, NULL, NULL, NULL)::rules.answer;
    END IF;
    INSERT INTO quorlock.waiters VALUES (k, who, of_turn_key, of_channel, t - elapsed, t + patience, of_context)
    ON CONFLICT (key, waiter) DO UPDATE SET since = EXCLUDED.since, expires = EXCLUDED.expires,
        turn_key = EXCLUDED.turn_key, channel = EXCLUDED.channel, context = EXCLUDED.context;
    IF NOT l.queued THEN
        UPDATE quorlock.locks SET queued = true WHERE key = k;
    END IF;
    SELECT count(*) INTO ahead FROM (
        SELECT FROM quorlock.waiters w WHERE w.key = k AND (w.since, w.waiter) < (t - elapsed, who) LIMIT 8
    ) before;
    IF held AND ahead < 2 THEN
        a := rules.refused(l, t);
    END IF;
    a.vote := 8;
    a.number := ahead;
    RETURN a;
END $$;

CREATE FUNCTION rules.leave_queue(k bytea, who bytea) RETURNS rules.answer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    l quorlock.locks;
    t bigint;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    SELECT * INTO l FROM quorlock.locks WHERE key = k FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN ROW(1, NULL, NULL, NULL, NULL, NULL, NULL)::rules.answer;
    END IF;
    t := rules.clock();
    DELETE FROM quorlock.waiters WHERE key = k AND waiter = who;
    IF FOUND THEN
        RETURN ROW(0, NULL, NULL, NULL, NULL, NULL, NULL)::rules.answer;
    END IF;
    -- It may have been this waiter's turn: notify the next.
    IF NOT rules.is_held(l, t) AND rules.tell_next(k, t) THEN
        UPDATE quorlock.locks SET told = t WHERE key = k;
        RETURN ROW(7, NULL, NULL, NULL, NULL, NULL, NULL)::rules.answer;
    END IF;
    RETURN ROW(1, NULL, NULL, NULL, NULL, NULL, NULL)::rules.answer;
END $$;

-- Lists the waiters that have asked recently: an array of all names followed by all contexts.
CREATE FUNCTION rules.list_waiters(k bytea) RETURNS rules.answer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    t bigint := rules.clock();
    names bytea[];
    contexts bytea[];
    times bigint[];
BEGIN
    SELECT array_agg(w.waiter), array_agg(w.context), array_agg(t - w.since) INTO names, contexts, times FROM (
        SELECT * FROM quorlock.waiters q WHERE q.key = k AND q.expires > t ORDER BY q.since, q.waiter LIMIT 101
    ) w;
    RETURN ROW(9, NULL, NULL, NULL, NULL, names || contexts, times)::rules.answer;
END $$;

-- Deletes expired rows of the next `most` keys, starting after the last key of the previous sweep. The last turn is
-- remembered for a minute, as is the place of a waiter that has expired: it may ask again.
CREATE FUNCTION rules.sweep(most int) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    after bytea;
    last bytea;
    t bigint := rules.clock();
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    SELECT swept INTO after FROM quorlock.meta FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    SELECT key INTO last FROM quorlock.locks WHERE key > after ORDER BY key OFFSET most - 1 LIMIT 1;
    UPDATE quorlock.meta SET swept = COALESCE(last, '');
    DELETE FROM quorlock.locks WHERE key IN (
        SELECT key FROM quorlock.locks
        WHERE key > after AND (last IS NULL OR key <= last)
            AND (token IS NULL AND expires IS NULL OR expires <= t)
            AND (buried IS NULL OR buried <= t)
            AND (told IS NULL OR told + 60000000 <= t)
        FOR UPDATE SKIP LOCKED
    );
    DELETE FROM quorlock.tombstones WHERE (key, attempt) IN (
        SELECT key, attempt FROM quorlock.tombstones
        WHERE key > after AND (last IS NULL OR key <= last) AND expires <= t FOR UPDATE SKIP LOCKED
    );
    DELETE FROM quorlock.readers WHERE (key, attempt) IN (
        SELECT key, attempt FROM quorlock.readers
        WHERE key > after AND (last IS NULL OR key <= last) AND expires <= t FOR UPDATE SKIP LOCKED
    );
    DELETE FROM quorlock.waiters WHERE (key, waiter) IN (
        SELECT key, waiter FROM quorlock.waiters
        WHERE key > after AND (last IS NULL OR key <= last) AND expires + 60000000 <= t FOR UPDATE SKIP LOCKED
    );
    DELETE FROM quorlock.intents WHERE (key, waiter) IN (
        SELECT key, waiter FROM quorlock.intents
        WHERE key > after AND (last IS NULL OR key <= last) AND expires <= t FOR UPDATE SKIP LOCKED
    );
END $$;

-- Returns since when the data are known. Begins a new history, with this name, if they are others than those of the
-- note: tables without one, a copy, a restored dump, or rows in another file of the table (TRUNCATE and COPY).
CREATE FUNCTION rules.known_since(server text, fresh text) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    here text := server || ' ' || pg_relation_filenode('quorlock.locks');
    noted bigint;
BEGIN
    SELECT since INTO noted FROM quorlock.history WHERE one AND place = here AND writer = xmin;
    IF NOT FOUND THEN
        -- Of several clients the first one writes.
        INSERT INTO quorlock.history AS h
        VALUES (true, fresh, rules.clock(), here, (txid_current() & 4294967295)::text::xid)
        ON CONFLICT (one) DO UPDATE SET name = EXCLUDED.name, since = EXCLUDED.since, place = EXCLUDED.place,
            writer = EXCLUDED.writer
        WHERE h.place <> here OR h.writer <> h.xmin;
        SELECT since INTO noted FROM quorlock.history WHERE one;
    END IF;
    RETURN noted;
END $$;

-- Returns the largest max_ttl of other clients, in milliseconds, and records ours if none is larger. Notifies the
-- other clients of a change: those that are connected would not learn of it otherwise.
CREATE FUNCTION rules.max_ttl(of_prefix bytea, ours bigint) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    theirs bigint;
    t bigint := rules.clock();
    month bigint := 30 * 86400 * 1000000::bigint;
BEGIN
    SELECT millis INTO theirs FROM quorlock.max_ttls WHERE prefix = of_prefix AND expires > t;
    IF theirs > ours THEN
        RETURN theirs;
    END IF;
    -- The record is refreshed once a day.
    IF theirs IS DISTINCT FROM ours OR NOT EXISTS (
        SELECT FROM quorlock.max_ttls WHERE prefix = of_prefix AND expires > t + month - 86400 * 1000000::bigint
    ) THEN
        INSERT INTO quorlock.max_ttls VALUES (of_prefix, ours, t + month)
        ON CONFLICT (prefix) DO UPDATE SET millis = EXCLUDED.millis, expires = EXCLUDED.expires
        -- Another client may have recorded a larger one at the same time.
        WHERE max_ttls.millis <= EXCLUDED.millis OR max_ttls.expires <= t;
        IF theirs IS DISTINCT FROM ours THEN
            PERFORM pg_notify('quorlock', 'max-ttl');
        END IF;
    END IF;
    RETURN COALESCE(theirs, 0);
END $$;
$functions$, 'rules.', 'quorlock.' || own);
PERFORM pg_catalog.set_config('role', caller, true);
END IF;
END $do$;
