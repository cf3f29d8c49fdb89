//! The classification of each server error: its kind, whether a retry can help, whether the cluster's map is
//! refreshed, and the finding of the health check. None of it depends on the text.

use std::sync::Arc;

use super::*;
use crate::doctor::Check;
use crate::doctor::rules::of_node;
use crate::doctor::rules::tests::setting;
use crate::node::Access;
use crate::node::facts::{ConnectFailure, Facts};

const OPERATION: NodeErrorKind = NodeErrorKind::PermissionDenied(Access::Operation);
const KEY: NodeErrorKind = NodeErrorKind::PermissionDenied(Access::Key);

/// A reply; its kind; its kind for any store; the finding; a part of the text.
const ERRORS: [(&str, ServerErrorKind, NodeErrorKind, Check, &str); 38] = [
    (
        "WRONGTYPE Operation against",
        ServerErrorKind::WrongType,
        NodeErrorKind::WrongData,
        Check::Failed,
        "`orders/42` holds something",
    ),
    (
        "ERR Key should be of string type if",
        ServerErrorKind::WrongType,
        NodeErrorKind::WrongData,
        Check::Failed,
        "`orders/42` holds something",
    ),
    (
        "ERR Error running script (call to f_1): @user_script:2: WRONGTYPE Operation",
        ServerErrorKind::WrongType,
        NodeErrorKind::WrongData,
        Check::Failed,
        "is not a lock",
    ),
    (
        "NOPERM no",
        ServerErrorKind::NoPermission(MissingRight::Command { named: None }),
        OPERATION,
        Check::MissingRight,
        "ACL SETUSER anna +eval +evalsha",
    ),
    (
        "NOPERM No permissions to access a key",
        ServerErrorKind::NoPermission(MissingRight::Key),
        KEY,
        Check::MissingRight,
        "access the key `orders/42`",
    ),
    (
        "ERR The user executing the script can't access at least one of the keys",
        ServerErrorKind::NoPermission(MissingRight::Key),
        KEY,
        Check::MissingRight,
        "access the key `orders/42`",
    ),
    (
        "ERR The user executing the script can't run this command",
        ServerErrorKind::NoPermission(MissingRight::CommandInScript),
        OPERATION,
        Check::MissingRight,
        "may not run a command of the script",
    ),
    (
        "ERR ACL failure in script: User anna has no permissions",
        ServerErrorKind::NoPermission(MissingRight::Command { named: None }),
        OPERATION,
        Check::MissingRight,
        "may not run EVAL",
    ),
    (
        "NOAUTH Authentication required.",
        ServerErrorKind::PasswordWanted,
        NodeErrorKind::Login,
        Check::Login,
        "requires a password",
    ),
    (
        "WRONGPASS invalid username-password pair",
        ServerErrorKind::WrongPassword,
        NodeErrorKind::Login,
        Check::Login,
        "rejects the password",
    ),
    (
        "DENIED Redis is running in protected mode",
        ServerErrorKind::ProtectedMode,
        NodeErrorKind::HostRefused,
        Check::ProtectedMode,
        "protected mode",
    ),
    (
        "READONLY You can't write",
        ServerErrorKind::ReadOnlyReplica,
        NodeErrorKind::ReadOnly,
        Check::Failed,
        "master's address",
    ),
    (
        "ERR Error running script (call to f_1): @user_script:2: -READONLY You",
        ServerErrorKind::ReadOnlyReplica,
        NodeErrorKind::ReadOnly,
        Check::Failed,
        "master's address",
    ),
    (
        "MASTERDOWN Link with MASTER is down",
        ServerErrorKind::MasterDown,
        NodeErrorKind::Busy,
        Check::Failed,
        "lost its master",
    ),
    (
        "MOVED 866 10.0.0.1:6379",
        ServerErrorKind::Moved,
        NodeErrorKind::Busy,
        Check::Failed,
        "served by another master",
    ),
    (
        "ASK 866 10.0.0.1:6379",
        ServerErrorKind::Migrating,
        NodeErrorKind::Busy,
        Check::Failed,
        "being migrated",
    ),
    (
        "TRYAGAIN Multiple keys",
        ServerErrorKind::Migrating,
        NodeErrorKind::Busy,
        Check::Failed,
        "being migrated",
    ),
    (
        "ERR Script attempted to access a non local key in",
        ServerErrorKind::Migrating,
        NodeErrorKind::Busy,
        Check::Failed,
        "being migrated",
    ),
    (
        "CLUSTERDOWN Hash slot not served",
        ServerErrorKind::ClusterDown,
        NodeErrorKind::Busy,
        Check::Failed,
        "does not serve its slot",
    ),
    (
        "ERR Error running script: the cluster is down",
        ServerErrorKind::ClusterDown,
        NodeErrorKind::Busy,
        Check::Failed,
        "does not serve its slot",
    ),
    (
        "CROSSSLOT Keys in request",
        ServerErrorKind::CrossSlot,
        NodeErrorKind::Unsupported,
        Check::Failed,
        "one hash tag",
    ),
    (
        "ERR This instance has cluster support disabled",
        ServerErrorKind::ClusterDisabled,
        NodeErrorKind::WrongServer,
        Check::Failed,
        "not a cluster member",
    ),
    (
        "ERR SELECT is not allowed in cluster mode",
        ServerErrorKind::ClusterEnabled,
        NodeErrorKind::WrongServer,
        Check::Failed,
        "is a cluster member",
    ),
    (
        "ERR DB index is out of range",
        ServerErrorKind::NoSuchDatabase,
        NodeErrorKind::Misconfigured,
        Check::Failed,
        "its setting `databases`",
    ),
    (
        "ERR invalid DB index",
        ServerErrorKind::NoSuchDatabase,
        NodeErrorKind::Misconfigured,
        Check::Failed,
        "its setting `databases`",
    ),
    (
        "LOADING Redis is loading",
        ServerErrorKind::Loading,
        NodeErrorKind::Busy,
        Check::Failed,
        "still loading",
    ),
    (
        "BUSY Redis is busy running a script",
        ServerErrorKind::Busy,
        NodeErrorKind::Busy,
        Check::Failed,
        "slow script",
    ),
    (
        "ERR max number of clients reached",
        ServerErrorKind::TooManyClients,
        NodeErrorKind::Busy,
        Check::Failed,
        "limit of clients",
    ),
    (
        "OOM command not allowed",
        ServerErrorKind::OutOfMemory,
        NodeErrorKind::OutOfSpace,
        Check::Failed,
        "out of memory",
    ),
    (
        "ERR Error running script (call to f_1): @user_script:2: -OOM command",
        ServerErrorKind::OutOfMemory,
        NodeErrorKind::OutOfSpace,
        Check::Failed,
        "out of memory",
    ),
    (
        "MISCONF Redis is configured to save",
        ServerErrorKind::CannotSave,
        NodeErrorKind::OutOfSpace,
        Check::Failed,
        "cannot save",
    ),
    (
        "NOREPLICAS Not enough good replicas",
        ServerErrorKind::TooFewReplicas,
        NodeErrorKind::Busy,
        Check::Failed,
        "too few replicas",
    ),
    (
        "ERR unknown command 'EVAL'",
        ServerErrorKind::UnknownCommand,
        NodeErrorKind::Unsupported,
        Check::Failed,
        "does not know EVAL",
    ),
    (
        "ERR Unknown command `EVAL`, with args",
        ServerErrorKind::UnknownCommand,
        NodeErrorKind::Unsupported,
        Check::Failed,
        "does not know EVAL",
    ),
    (
        "ERR This instance has Lua scripting support disabled",
        ServerErrorKind::UnknownCommand,
        NodeErrorKind::Unsupported,
        Check::Failed,
        "does not know EVAL",
    ),
    (
        "NOSCRIPT No matching script",
        ServerErrorKind::UnknownScript,
        NodeErrorKind::Other,
        Check::Failed,
        "returned an error",
    ),
    (
        "NOPROTO sorry",
        ServerErrorKind::UnknownProtocol,
        NodeErrorKind::Other,
        Check::Failed,
        "returned an error",
    ),
    ("ERR something else", ServerErrorKind::Other, NodeErrorKind::Other, Check::Failed, "ERR something else"),
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
    for (line, described, kind, check, words) in ERRORS {
        let error = explain(ServerError::on_line(line), asked(Peer::Server));
        let text = format!("{error:#}");
        assert!(text.contains(words), "{line}: {text}");
        let sent_away = matches!(
            described,
            ServerErrorKind::Moved | ServerErrorKind::Migrating | ServerErrorKind::ClusterDown
        );
        for error in [error.clone(), within(&error, "no TLS"), within(&within(&error, "x9"), "unreachable")] {
            assert_eq!(ServerError::of(&error).map(ServerError::kind), Some(&described), "{line}");
            assert_eq!(error.kind(), kind, "{line}");
            assert_eq!(is_sent_away(&error), sent_away, "{line}");
            assert_eq!(finding(&error), check, "{line}");
            assert!(!error.may_have_acted(), "{line}: a refused request was not carried out");
        }
    }
}

#[test]
fn an_error_is_permanent_if_waiting_cannot_help() {
    use ServerErrorKind as VoteOutcome;
    for (line, described, ..) in ERRORS {
        let permanent = matches!(
            described,
            VoteOutcome::WrongType
                | VoteOutcome::NoPermission(_)
                | VoteOutcome::PasswordWanted
                | VoteOutcome::WrongPassword
                | VoteOutcome::ProtectedMode
                | VoteOutcome::ReadOnlyReplica
                | VoteOutcome::CrossSlot
                | VoteOutcome::ClusterDisabled
                | VoteOutcome::ClusterEnabled
                | VoteOutcome::NoSuchDatabase
                | VoteOutcome::UnknownCommand
        );
        let error = explain(ServerError::on_line(line), asked(Peer::Server));
        assert_eq!(error.is_permanent(), permanent, "{line}");
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
fn an_error_of_the_login_says_where_the_password_is_set() {
    for line in ["NOAUTH Authentication required.", "WRONGPASS invalid username-password pair"] {
        let error = explain(ServerError::on_line(line), asked(Peer::Server));
        assert!(error.to_string().contains(LOGIN), "{error}");
    }
}

#[test]
fn a_sentinels_password_belongs_elsewhere() {
    for line in ["NOAUTH Authentication required.", "WRONGPASS invalid username-password pair"] {
        let error = explain(ServerError::on_line(line), asked(Peer::Sentinel));
        assert!(error.to_string().contains("sentinel_password"), "{error}");
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
