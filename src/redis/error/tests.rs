//! The classification of each server error: its kind, whether a retry can help, whether the cluster's map is
//! refreshed, and the finding of the health check. None of it depends on the text.

use std::sync::Arc;

use super::*;
use crate::doctor::Check;
use crate::doctor::rules::of_node;
use crate::doctor::rules::tests::setting;
use crate::node::Access;
use crate::node::facts::{ConnectFailure, Facts};
use crate::redis::server_error::ServerErrorKind::{
    Busy, CannotSave, ClusterDisabled, ClusterDown, ClusterEnabled, CrossSlot, Loading, MasterDown,
    Migrating, Moved, NoPermission, NoSuchDatabase, Other, OutOfMemory, PasswordWanted, ProtectedMode,
    ReadOnlyReplica, TooFewReplicas, TooManyClients, UnknownCommand, UnknownProtocol, UnknownScript,
    WrongPassword, WrongType,
};

const OPERATION: NodeErrorKind = NodeErrorKind::PermissionDenied(Access::Operation);
const KEY: NodeErrorKind = NodeErrorKind::PermissionDenied(Access::Key);

/// A reply; its kind; a part of the text.
const ERRORS: [(&str, ServerErrorKind, &str); 38] = [
    ("WRONGTYPE Operation against", WrongType, "`orders/42` holds something"),
    ("ERR Key should be of string type if", WrongType, "`orders/42` holds something"),
    (
        "ERR Error running script (call to f_1): @user_script:2: WRONGTYPE Operation",
        WrongType,
        "is not a lock",
    ),
    ("NOPERM no", NoPermission(MissingRight::Command { named: None }), "ACL SETUSER anna +eval +evalsha"),
    ("NOPERM No permissions to access a key", NoPermission(MissingRight::Key), "access the key `orders/42`"),
    (
        "ERR The user executing the script can't access at least one of the keys",
        NoPermission(MissingRight::Key),
        "access the key `orders/42`",
    ),
    (
        "ERR The user executing the script can't run this command",
        NoPermission(MissingRight::CommandInScript),
        "may not run a command of the script",
    ),
    (
        "ERR ACL failure in script: User anna has no permissions",
        NoPermission(MissingRight::Command { named: None }),
        "may not run EVAL",
    ),
    ("NOAUTH Authentication required.", PasswordWanted, "requires a password"),
    ("WRONGPASS invalid username-password pair", WrongPassword, "rejects the password"),
    ("DENIED Redis is running in protected mode", ProtectedMode, "protected mode"),
    ("READONLY You can't write", ReadOnlyReplica, "master's address"),
    (
        "ERR Error running script (call to f_1): @user_script:2: -READONLY You",
        ReadOnlyReplica,
        "master's address",
    ),
    ("MASTERDOWN Link with MASTER is down", MasterDown, "lost its master"),
    ("MOVED 866 10.0.0.1:6379", Moved, "served by another master"),
    ("ASK 866 10.0.0.1:6379", Migrating, "being migrated"),
    ("TRYAGAIN Multiple keys", Migrating, "being migrated"),
    ("ERR Script attempted to access a non local key in", Migrating, "being migrated"),
    ("CLUSTERDOWN Hash slot not served", ClusterDown, "does not serve its slot"),
    ("ERR Error running script: the cluster is down", ClusterDown, "does not serve its slot"),
    ("CROSSSLOT Keys in request", CrossSlot, "one hash tag"),
    ("ERR This instance has cluster support disabled", ClusterDisabled, "not a cluster member"),
    ("ERR SELECT is not allowed in cluster mode", ClusterEnabled, "is a cluster member"),
    ("ERR DB index is out of range", NoSuchDatabase, "its setting `databases`"),
    ("ERR invalid DB index", NoSuchDatabase, "its setting `databases`"),
    ("LOADING Redis is loading", Loading, "still loading"),
    ("BUSY Redis is busy running a script", Busy, "slow script"),
    ("ERR max number of clients reached", TooManyClients, "limit of clients"),
    ("OOM command not allowed", OutOfMemory, "out of memory"),
    ("ERR Error running script (call to f_1): @user_script:2: -OOM command", OutOfMemory, "out of memory"),
    ("MISCONF Redis is configured to save", CannotSave, "cannot save"),
    ("NOREPLICAS Not enough good replicas", TooFewReplicas, "too few replicas"),
    ("ERR unknown command 'EVAL'", UnknownCommand, "does not know EVAL"),
    ("ERR Unknown command `EVAL`, with args", UnknownCommand, "does not know EVAL"),
    ("ERR This instance has Lua scripting support disabled", UnknownCommand, "does not know EVAL"),
    ("NOSCRIPT No matching script", UnknownScript, "returned an error"),
    ("NOPROTO sorry", UnknownProtocol, "returned an error"),
    ("ERR something else", Other, "ERR something else"),
];

/// A kind; the kind for any store; whether waiting cannot help; the finding.
const KINDS: [(ServerErrorKind, NodeErrorKind, bool, Check); 26] = [
    (WrongType, NodeErrorKind::WrongData, true, Check::Failed),
    (NoPermission(MissingRight::Command { named: None }), OPERATION, true, Check::MissingRight),
    (NoPermission(MissingRight::Key), KEY, true, Check::MissingRight),
    (NoPermission(MissingRight::CommandInScript), OPERATION, true, Check::MissingRight),
    (PasswordWanted, NodeErrorKind::Login, true, Check::Login),
    (WrongPassword, NodeErrorKind::Login, true, Check::Login),
    (ProtectedMode, NodeErrorKind::HostRefused, true, Check::ProtectedMode),
    (ReadOnlyReplica, NodeErrorKind::ReadOnly, true, Check::Failed),
    (MasterDown, NodeErrorKind::Busy, false, Check::Failed),
    (Moved, NodeErrorKind::Busy, false, Check::Failed),
    (Migrating, NodeErrorKind::Busy, false, Check::Failed),
    (ClusterDown, NodeErrorKind::Busy, false, Check::Failed),
    (CrossSlot, NodeErrorKind::Unsupported, true, Check::Failed),
    (ClusterDisabled, NodeErrorKind::WrongServer, true, Check::Failed),
    (ClusterEnabled, NodeErrorKind::WrongServer, true, Check::Failed),
    (NoSuchDatabase, NodeErrorKind::Misconfigured, true, Check::Failed),
    (Loading, NodeErrorKind::Busy, false, Check::Failed),
    (Busy, NodeErrorKind::Busy, false, Check::Failed),
    (TooManyClients, NodeErrorKind::Busy, false, Check::Failed),
    (OutOfMemory, NodeErrorKind::OutOfSpace, false, Check::Failed),
    (CannotSave, NodeErrorKind::OutOfSpace, false, Check::Failed),
    (TooFewReplicas, NodeErrorKind::Busy, false, Check::Failed),
    (UnknownCommand, NodeErrorKind::Unsupported, true, Check::Failed),
    (UnknownScript, NodeErrorKind::Other, false, Check::Failed),
    (UnknownProtocol, NodeErrorKind::Other, false, Check::Failed),
    (Other, NodeErrorKind::Other, false, Check::Failed),
];

fn asked(peer: Peer) -> SentCommand<'static> {
    SentCommand { command: "EVAL", key: "orders/42", user: "anna", peer }
}

fn finding(error: &NodeError) -> Check {
    let facts = Facts { failure: Some(ConnectFailure::new(error.clone())), ..Facts::default() };
    of_node(&Arc::from("a"), &facts, &setting(3)).first().expect("trouble is a finding").check
}

/// Returns the error with words before its own, as callers add.
fn within(error: &NodeError, place: &str) -> NodeError {
    let NodeError::Failed { kind, reason } = error else { panic!("{error:?}") };
    NodeError::Failed { kind: *kind, reason: reason.within(place) }
}

#[test]
fn each_error_has_its_kinds_whatever_text_precedes_it() {
    for (line, described, words) in ERRORS {
        let consequences = KINDS.into_iter().find(|(kind, ..)| *kind == described);
        let (_, kind, permanent, check) = consequences.expect("a kind of the table");
        let error = explain(ServerError::on_line(line), asked(Peer::Server));
        let text = format!("{error:#}");
        assert!(text.contains(words), "{line}: {text}");
        let sent_away = matches!(described, Moved | Migrating | ClusterDown);
        for error in [error.clone(), within(&error, "no TLS"), within(&within(&error, "x9"), "unreachable")] {
            assert_eq!(ServerError::of(&error).map(ServerError::kind), Some(&described), "{line}");
            assert_eq!((error.kind(), error.is_permanent()), (kind, permanent), "{line}");
            assert_eq!(is_sent_away(&error), sent_away, "{line}");
            assert_eq!(finding(&error), check, "{line}");
            assert!(!error.may_have_acted(), "{line}: a refused request was not carried out");
        }
    }
}

#[test]
fn a_permission_is_named_if_the_server_names_it() {
    let error = ServerError::on_line("NOPERM one has no permissions to run the 'zadd' command");
    assert!(explain(error, asked(Peer::Server)).to_string().contains("run ZADD;"));
}

#[test]
fn a_command_that_not_all_clients_run_has_a_right_of_its_own() {
    for (command, right) in [
        (SELECT, "+select`"),
        (SENTINEL, "+sentinel|get-master-addr-by-name +sentinel|master`"),
        (SCAN, "+scan`"),
    ] {
        for line in
            [format!("NOPERM anna has no permissions to run the '{command}' command"), "NOPERM no".into()]
        {
            let text = explain(ServerError::on_line(&line), SentCommand { command, ..asked(Peer::Server) })
                .to_string();
            assert!(text.contains(&format!("ACL SETUSER anna {right}")), "{text}");
        }
    }
}

#[test]
fn a_server_that_does_not_know_sentinel_is_none() {
    let asked = SentCommand { command: SENTINEL, ..asked(Peer::Sentinel) };
    let error = explain(ServerError::on_line("ERR unknown command `SENTINEL`, with args"), asked);
    assert_eq!(error.kind(), NodeErrorKind::WrongServer);
    assert!(error.to_string().contains("it is no Sentinel: give the port of the Sentinels"), "{error}");
}

#[test]
fn an_error_of_the_login_says_where_the_password_is_set_which_for_a_sentinel_is_elsewhere() {
    for line in ["NOAUTH Authentication required.", "WRONGPASS invalid username-password pair"] {
        for (peer, place) in [(Peer::Server, LOGIN), (Peer::Sentinel, "sentinel_password")] {
            let error = explain(ServerError::on_line(line), asked(peer));
            assert!(error.to_string().contains(place), "{error}");
        }
    }
}

#[test]
fn a_servers_words_are_escaped_and_bounded() {
    let error = ServerError::on_line(&format!("ERR \x1b[2J{}", "x".repeat(10_000)));
    assert!(!error.to_string().chars().any(char::is_control), "it could move the cursor");
    let error = format!("{:#}", explain(error, asked(Peer::Server)));
    assert!(error.chars().count() < 300, "it could fill the screen");
}

#[test]
fn a_closed_connection_is_recognised_by_type() {
    let closed = || io::Error::from(io::ErrorKind::ConnectionReset);
    let early = ConnectionError::Early { error: closed(), likely: "possibly a TLS port" };
    for reason in [early, ConnectionError::Stream(closed())] {
        let error = NodeError::Unreachable { reason: reason.into() };
        assert!(is_closed(&error), "{error:?}");
        let NodeError::Unreachable { reason } = &error else { panic!("{error:?}") };
        assert!(is_closed(&NodeError::Unreachable { reason: reason.within("its master a") }));
    }
    for reason in [ConnectionError::Stray.into(), Reason::from("closed by the server or the network")] {
        assert!(!is_closed(&NodeError::Unreachable { reason }));
    }
}

#[test]
fn a_tls_failure_is_recognised_by_type() {
    let no_tls = || TlsFailure::new("its certificate has expired", "expired");
    let io = || io::Error::new(io::ErrorKind::InvalidData, no_tls());
    for error in [NodeError::undialled(io()), unconnected(ConnectionError::Stream(io()))] {
        assert_eq!((error.kind(), error.is_permanent()), (NodeErrorKind::Tls, true));
        assert_eq!(format!("{error:#}"), "no TLS: its certificate has expired (expired)");
    }
    assert_eq!(NodeError::undialled(io::Error::other("no TLS")).kind(), NodeErrorKind::Unreachable);
}
