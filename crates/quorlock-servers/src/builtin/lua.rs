//! Runs the Lua scripts of clients.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use mlua::chunk::ChunkMode;
use mlua::state::{GcIncParams, GcMode};
use mlua::{Function, HookTriggers, Lua, LuaOptions, MultiValue, Result, StdLib, Table, Value, VmState};

use crate::resp::Resp;

thread_local! {
    /// Making one takes longer than running most scripts. A script leaves nothing behind that another one could see.
    static INTERPRETER: RefCell<Option<Interpreter>> = const { RefCell::new(None) };
}

struct Interpreter {
    lua: Lua,
    /// Runs a script: the function that `prelude.lua` returns.
    run: Function,
    /// By the hash of the text.
    compiled: BTreeMap<String, Function>,
}

/// How many thousands of instructions a script may take: far more than any of `quorlock` does.
const MOST_INSTRUCTIONS: u32 = 1000;
/// The most scripts that stay compiled.
const MOST_COMPILED: usize = 256;
/// The most memory of all scripts, in bytes.
const MOST_MEMORY: usize = 16 << 20;
/// The most lists within lists that a script may return.
const DEEPEST: usize = 8;

/// Runs a script in which `redis.call` and `redis.pcall` are `call`, and returns its reply.
pub(super) fn run(
    (hash, text): (&str, &[u8]),
    keys: &[Vec<u8>],
    arguments: &[Vec<u8>],
    call: impl FnMut(&[Vec<u8>]) -> Resp,
) -> Resp {
    INTERPRETER.with_borrow_mut(|interpreter| {
        let done = match interpreter {
            Some(interpreter) => interpreter.run((hash, text), keys, arguments, call),
            None => Interpreter::new()
                .and_then(|new| interpreter.insert(new).run((hash, text), keys, arguments, call)),
        };
        // An error message is one line.
        done.unwrap_or_else(|error| Resp::Error(format!("ERR {error}").replace(['\r', '\n'], " ")))
    })
}

impl Interpreter {
    fn new() -> Result<Interpreter> {
        let lua = Lua::new_with(StdLib::MATH | StdLib::STRING | StdLib::TABLE, LuaOptions::default())?;
        lua.set_memory_limit(MOST_MEMORY)?;
        // What lives is small, so that collecting less often saves time and takes little memory.
        lua.gc_set_mode(GcMode::Incremental(GcIncParams::default().pause(1000)));
        let sha1hex = lua.create_function(|_, text: mlua::LuaString| Ok(sha1hex(&text.as_bytes())))?;
        let run = lua.load(include_str!("prelude.lua")).set_name("=prelude").call(sha1hex)?;
        Ok(Interpreter { lua, run, compiled: BTreeMap::new() })
    }

    fn run(
        &mut self,
        (hash, text): (&str, &[u8]),
        keys: &[Vec<u8>],
        arguments: &[Vec<u8>],
        mut call: impl FnMut(&[Vec<u8>]) -> Resp,
    ) -> Result<Resp> {
        let script = if let Some(script) = self.compiled.get(hash) {
            script
        } else {
            if self.compiled.len() >= MOST_COMPILED {
                self.compiled.clear();
            }
            let chunk = self.lua.load(text).set_name("@user_script").set_mode(ChunkMode::Text);
            self.compiled.entry(hash.to_owned()).or_insert(chunk.into_function()?)
        };
        limit(&self.lua)?;
        let result = self.lua.scope(|scope| {
            let caller = scope.create_function_mut(|lua, words: MultiValue| {
                let words: Option<Vec<_>> = words.iter().map(word).collect();
                let refused = "ERR Lua redis lib command arguments must be strings or integers";
                let reply = words.map_or_else(|| Resp::Error(refused.to_owned()), |words| call(&words));
                to_lua(lua, reply)
            })?;
            let texts = |texts: &[Vec<u8>]| {
                let texts = texts.iter().map(|text| self.lua.create_string(text));
                self.lua.create_sequence_from(texts.collect::<Result<Vec<_>>>()?)
            };
            self.run.call::<Value>((script, caller, texts(keys)?, texts(arguments)?))
        })?;
        from_lua(&result, DEEPEST)
    }
}

/// Stops the script that runs next when it has taken too long.
fn limit(lua: &Lua) -> Result<()> {
    let left = Cell::new(MOST_INSTRUCTIONS);
    lua.set_hook(HookTriggers::new().every_nth_instruction(1000), move |lua, _| {
        left.set(left.get().saturating_sub(1));
        if left.get() > 0 {
            return Ok(VmState::Continue);
        }
        // Also where the script catches errors.
        let stop = |_: &Lua, _: &mlua::debug::Debug<'_>| Err(too_long());
        lua.set_hook(HookTriggers::new().every_nth_instruction(1), stop)?;
        Err(too_long())
    })
}

fn too_long() -> mlua::Error {
    mlua::Error::runtime("the script has taken more than a million instructions")
}

/// Returns a word of a command. `None` if it is neither a string nor a number.
#[expect(clippy::wildcard_enum_match_arm, reason = "no other type is a word")]
fn word(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::String(text) => Some(text.as_bytes().to_vec()),
        Value::Integer(number) => Some(number.to_string().into_bytes()),
        Value::Number(number) => Some(number.to_string().into_bytes()),
        _ => None,
    }
}

/// Converts a reply as a server does.
fn to_lua(lua: &Lua, reply: Resp) -> Result<Value> {
    let named = |name: &str, text: &str| -> Result<Value> {
        let table = lua.create_table_with_capacity(0, 1)?;
        table.raw_set(name, text)?;
        Ok(Value::Table(table))
    };
    Ok(match reply {
        Resp::Status(text) => named("ok", &text)?,
        Resp::Error(text) => named("err", &text)?,
        // Exact below 2^53, as in every Lua of a server.
        Resp::Number(number) => Value::Integer(number),
        Resp::Text(text) => Value::String(lua.create_string(text)?),
        Resp::Verbatim(text) => Value::String(lua.create_string(text)?),
        Resp::Null => Value::Boolean(false),
        Resp::List(parts) | Resp::Push(parts) => {
            let parts = parts.into_iter().map(|part| to_lua(lua, part));
            Value::Table(lua.create_sequence_from(parts.collect::<Result<Vec<_>>>()?)?)
        }
        Resp::Map(pairs) => {
            let parts = pairs.into_iter().flat_map(|(key, value)| [key, value]);
            to_lua(lua, Resp::List(parts.collect()))?
        }
    })
}

/// Converts the result of a script as a server does.
#[expect(clippy::wildcard_enum_match_arm, reason = "every other type is no value")]
fn from_lua(value: &Value, depth: usize) -> Result<Resp> {
    Ok(match value {
        Value::String(text) => Resp::text(text.as_bytes()),
        Value::Integer(number) => Resp::Number(*number),
        #[expect(clippy::cast_possible_truncation, reason = "as a server does")]
        Value::Number(number) => Resp::Number(*number as i64),
        Value::Boolean(true) => Resp::Number(1),
        Value::Table(table) => from_table(table, depth)?,
        _ => Resp::Null,
    })
}

fn from_table(table: &Table, depth: usize) -> Result<Resp> {
    let line = |text: mlua::LuaString| text.to_string_lossy().replace(['\r', '\n'], " ");
    if let Some(error) = table.raw_get::<Option<mlua::LuaString>>("err")? {
        return Ok(Resp::Error(line(error)));
    }
    if let Some(status) = table.raw_get::<Option<mlua::LuaString>>("ok")? {
        return Ok(Resp::Status(line(status)));
    }
    let depth = depth.checked_sub(1).ok_or_else(|| mlua::Error::runtime("reached lua stack limit"))?;
    let parts = table.sequence_values::<Value>();
    Ok(Resp::List(parts.map(|part| from_lua(&part?, depth)).collect::<Result<_>>()?))
}

/// Returns the SHA-1 in hexadecimal.
pub(super) fn sha1hex(text: &[u8]) -> String {
    sha1_smol::Sha1::from(text).digest().to_string()
}
