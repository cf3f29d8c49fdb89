//! Scripts on the built-in server, beside a real one.

use std::error::Error;

use proptest::prelude::{Just, Strategy, prop_oneof};
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use quorlock_testkit::{Kind, Servers, patience};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisResult, Value, cmd};

use crate::builtin::{connect, serve};

/// Runs a script without keys on both servers, and returns its reply or error.
async fn both(
    servers: &mut [MultiplexedConnection; 2],
    script: &str,
    arguments: &[String],
) -> [Result<Value, String>; 2] {
    let mut call = cmd("EVAL");
    call.arg(script).arg(0).arg(arguments);
    let [builtin, real] = servers;
    let (one, other) = tokio::join!(call.query_async(builtin), call.query_async(real));
    [one, other].map(|reply: RedisResult<Value>| {
        // A server also says where in the script the error was raised.
        reply.map_err(|error| error.to_string().split(" script: ").next().unwrap_or_default().to_owned())
    })
}

/// Returns connections to the built-in server and to a real one, of a version that has all commands; `None` if there is
/// no such.
async fn beside_a_real_one() -> Result<Option<([MultiplexedConnection; 2], Servers)>, Box<dyn Error>> {
    let new = |kind: &Kind| matches!(kind, Kind::Program { version, .. } if version.split('.').next().is_some_and(|major| major.parse().is_ok_and(|major: u32| major >= 7)));
    let Some(kind) = Kind::all_found().into_iter().find(new) else {
        eprintln!("skipped: no Redis or Valkey server of version 7 or later is installed");
        return Ok(None);
    };
    println!("beside {kind}");
    let servers = Servers::setup().kind(kind).start(1).await?;
    let real = Client::open(servers.urls().concat())?.get_multiplexed_async_connection().await?;
    Ok(Some(([connect("").await?, real], servers)))
}

#[tokio::test]
async fn values_and_errors_of_scripts_are_converted_as_a_real_server_does() -> Result<(), Box<dyn Error>> {
    let Some((mut servers, _real)) = beside_a_real_one().await? else { return Ok(()) };
    for script in [
        "return 3.99",
        "return {1, 'a', {2}, nil, 3}",
        "return false",
        "return true",
        "return {ok = 'fine'}",
        "return {err = 'ERR bad'}",
        "return redis.status_reply('fine')",
        "return redis.error_reply('ERR bad')",
        "return redis.sha1hex('abc')",
        "return {type(redis.call('GET', 'none')), redis.call('SET', 'n', 1 / 4).ok, redis.call('GET', 'n')}",
        "return redis.call('SET', 'n', 2 ^ 52) and redis.call('GET', 'n')",
        "redis.call('RPUSH', 'list', 'a') return redis.call('GET', 'list')",
        "return {pcall(redis.call, 'GET', 'list')}",
        "return type(redis.pcall('GET', 'list').err)",
        "redis.call('DEL', 'list') return redis.pcall('PEXPIRE', 'n', 'x')",
        "local done, why = pcall(function() error('said', 0) end) return {done, why}",
        "error('said', 0)",
        "return {KEYS[1], #ARGV}",
        "return {redis.call('HSET', 'h', 'a', 1, 'b', 2), redis.call('HDEL', 'h', 'a', 'b', 'c'), redis.call('EXISTS', 'h')}",
        "return {redis.call('ZADD', 'z', 7, 'n'), redis.call('ZSCORE', 'z', 'n'), redis.call('ZSCORE', 'z', 'm')}",
        "redis.call('SET', 'w', 'x') return redis.pcall('HINCRBY', 'w', 'a', '3.5')",
    ] {
        let [builtin, real] = both(&mut servers, script, &[]).await;
        assert_eq!(builtin, real, "{script}");
    }
    // Valkey has other words for these from 8.1 on.
    for script in ["return redis.call('GET', {})", "return redis.call()"] {
        let [builtin, real] = both(&mut servers, script, &[]).await;
        assert!(builtin.is_err() && real.is_err(), "{script}: {builtin:?} and {real:?}");
    }
    Ok(())
}

/// Generates a command that scripts call, on few keys, so that commands meet.
fn command() -> impl Strategy<Value = Vec<String>> {
    let key = prop_oneof![Just("a"), Just("b"), Just("c")];
    let text = prop_oneof![Just(""), Just("7"), Just("x y")];
    let member = prop_oneof![Just("n"), Just("m"), Just("o")];
    let number = prop_oneof![Just("-2"), Just("0"), Just("3"), Just("3.5"), Just("9007199254740993")];
    let bound = prop_oneof![Just("-inf"), Just("+inf"), Just("(3"), Just("3"), Just("0")];
    let life = prop_oneof![Just("-1"), Just("30000"), Just("300000")];
    let at = prop_oneof![Just("1"), Just("4000000000000"), Just("4100000000000")];
    (
        0..33_u8,
        [key.clone(), key],
        text,
        [member.clone(), member],
        [number.clone(), number],
        [bound.clone(), bound],
        life,
        at,
    )
        .prop_map(
            |(kind, [key, other], text, [member, second], [number, next], [least, most], life, at)| {
                let words: &[&str] = match kind {
                    0 => &["GET", key],
                    1 => &["GETEX", key],
                    2 => &["SET", key, text],
                    3 => &["SET", key, text, "PX", life],
                    4 => &["SET", key, text, "NX", "PX", "30000"],
                    5 => &["SET", key, text, "XX", "KEEPTTL"],
                    6 => &["SETRANGE", key, "0", ""],
                    7 => &["SETRANGE", key, number, text],
                    8 => &["DEL", key, other],
                    9 => &["EXISTS", key, other, key],
                    10 => &["PTTL", key],
                    11 => &["PEXPIRE", key, life],
                    12 => &["PEXPIREAT", key, at],
                    13 => &["PEXPIREAT", key, at, "GT"],
                    14 => &["PEXPIREAT", key, at, "NX"],
                    15 => &["SETRANGE", key, "1", text],
                    16..19 => &["ZADD", key, number, member],
                    19 => &["ZADD", key, number, member, next, second],
                    20 => &["ZADD", key, "GT", "CH", number, member],
                    21 => &["ZADD", key, "XX", "INCR", number, member],
                    22 => &["ZINCRBY", key, number, member],
                    23 => &["ZREM", key, member, second],
                    24 => &["ZREMRANGEBYRANK", key, "0", "-3"],
                    25 => &["ZREMRANGEBYRANK", key, number, next],
                    26 => &["ZREMRANGEBYSCORE", key, least, most],
                    27 => &["ZRANGEBYSCORE", key, least, most, "WITHSCORES"],
                    28 => &["ZRANGEBYSCORE", key, least, most, "LIMIT", "0", "2"],
                    29 => &["ZPOPMIN", key],
                    30 => &["ZPOPMIN", key, "2"],
                    31 => &["ZPOPMAX", key],
                    32 => &["HSET", key, member, text],
                    _ => &["HINCRBY", key, member, number],
                };
                words.iter().map(|word| (*word).to_owned()).collect()
            },
        )
}

#[tokio::test]
async fn any_commands_in_scripts_get_the_replies_of_a_real_server() -> Result<(), Box<dyn Error>> {
    const RUNS: u64 = 100;
    let Some((mut servers, _real)) = beside_a_real_one().await? else { return Ok(()) };
    for seed in 0..RUNS {
        for server in &mut servers {
            let _: Value = cmd("FLUSHALL").query_async(server).await?;
        }
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let mut runner = TestRunner::new_with_rng(Config::default(), rng);
        let commands = proptest::collection::vec(command(), 40).new_tree(&mut runner);
        let commands = commands.map_err(|reason| reason.to_string())?.current();
        for (place, words) in commands.iter().enumerate() {
            let script = "return redis.call(unpack(ARGV))";
            let replies = both(&mut servers, script, words).await;
            // Milliseconds differ: only the expiries of this test are distinguished.
            let [builtin, real] = replies.map(|reply| match reply {
                Ok(Value::Int(left)) if words[0] == "PTTL" => {
                    Ok(Value::Int((left + 15_000).div_euclid(30_000)))
                }
                other => other,
            });
            assert_eq!(builtin, real, "seed {seed}, command {place} of {:#?}", &commands[..=place]);
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_script_reaches_nothing_outside_and_cannot_run_forever() -> RedisResult<()> {
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(patience()));
    let mut redis = serve("").await?.get_multiplexed_async_connection_with_config(&config).await?;
    for (script, expected) in [
        ("while true do end", "a million instructions"),
        ("while true do pcall(function() while true do end end) end", "a million instructions"),
        ("local text = 'x' while true do text = text .. text end", "memory"),
        ("return io.open('/etc/passwd')", "nonexistent global variable 'io'"),
        ("return os.getenv('HOME')", "nonexistent global variable 'os'"),
        ("leaked = 1", "create global variable 'leaked'"),
        ("return", ""),
        ("return {", "user_script"),
    ] {
        let reply: RedisResult<Value> = cmd("EVAL").arg(script).arg(0).query_async(&mut redis).await;
        match reply {
            Err(error) => {
                assert!(!expected.is_empty() && error.to_string().contains(expected), "{script}: {error}");
            }
            Ok(reply) => assert_eq!((reply, expected), (Value::Nil, ""), "{script}"),
        }
    }
    Ok(())
}
