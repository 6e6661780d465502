//! Clients that mean harm, or have lost their mind: packets of anything, pages full of anything. From a fixed seed.

use crate::node::{GIB, Node, PATIENCE, ask, next};
use crate::player::Player;
use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};
use quota_core::ledger::Units;
use quota_core::{Bytes, ledger::SlotId};
use quota_wire::TenantMemory;
use quota_wire::audit::AuditQuery;
use quota_wire::lock::LedgerLock;
use quota_wire::memory::{Access, Mapping};
use quota_wire::message::{Admit, Change, Hello, PACKET_BYTES_MAX, PROTOCOL_VERSION, Reply, Request};
use quota_wire::socket::{Connection, WireError};
use rustix::net::{SendFlags, send};
use std::os::fd::AsFd;
use std::time::Instant;

fn runner(cases: u32) -> TestRunner {
    TestRunner::new(ProptestConfig {
        cases,
        rng_seed: RngSeed::Fixed(1),
        failure_persistence: None,
        ..ProptestConfig::default()
    })
}

/// Requests as they should be, to be spoilt.
fn requests() -> Vec<Vec<u8>> {
    let tenant = || Some("t".to_owned());
    let all = [
        Request::Hello(Hello { version: PROTOCOL_VERSION, tenant: tenant(), pid: 1, ..Hello::default() }),
        Request::Admit(Admit {
            version: PROTOCOL_VERSION,
            tenant: tenant(),
            memory: Some("1GiB".to_owned()),
            ..Admit::default()
        }),
        Request::Rejoin { version: PROTOCOL_VERSION, slot: 0 },
        Request::Measure { sequence: 1 },
        Request::Processes,
        Request::Devices,
        Request::About,
        Request::Find { tenant: "t".to_owned() },
        Request::Set(Change { tenant: "t".to_owned(), memory: Some("1GiB".to_owned()), ..Change::default() }),
        Request::Apply { document: "tenants: [{name: a}]".to_owned() },
        Request::Audit(AuditQuery { newest: Some(1), ..AuditQuery::default() }),
    ];
    all.iter().map(|request| serde_json::to_vec(request).expect("JSON")).collect()
}

fn packets() -> impl Strategy<Value = Vec<u8>> {
    let spoilt = (prop::sample::select(requests()), any::<prop::sample::Index>(), any::<u8>(), 0..4).prop_map(
        |(mut packet, at, byte, how)| {
            let at = at.index(packet.len());
            match how {
                0 => packet[at] = byte,
                1 => packet.insert(at, byte),
                2 => drop(packet.remove(at)),
                _ => packet.truncate(at.max(1)),
            }
            packet
        },
    );
    prop_oneof![
        4 => spoilt,
        2 => prop::collection::vec(any::<u8>(), 1..500),
        1 => "\\PC{1,200}".prop_map(String::into_bytes),
        1 => (1..PACKET_BYTES_MAX + 1000).prop_map(|bytes| vec![b'['; bytes]),
    ]
}

/// Whatever comes, it is answered or the connection is closed, and nobody else notices.
#[test]
fn packets_of_anything_are_answered() {
    let node = Node::start("l4-24gb", &[]);
    let _member = Player::join(&node, "bystander", Hello::default());
    for admin in [false, true] {
        let connect = || if admin { node.administer() } else { node.connect() };
        let done = runner(600).run(&packets(), |packet| {
            let connection: Connection = connect();
            send(connection.as_fd(), &packet, SendFlags::NOSIGNAL).expect("it fits the socket");
            match connection.receive_until::<Reply>(Instant::now() + PATIENCE) {
                Ok(_) | Err(WireError::Closed) => Ok(()),
                Err(error) => Err(TestCaseError::fail(format!("{error}"))),
            }
        });
        done.unwrap_or_else(|error| panic!("{error}"));
    }
    assert!(matches!(ask(&node.connect(), &Request::About), Reply::About(_)));
    assert!(node.processes().iter().any(|row| row.tenant == "bystander"), "it is still there");
}

/// What a tenant writes into its pages is its own affair, whatever it is.
#[test]
fn pages_full_of_anything_harm_nobody_else() {
    let node = Node::start("l4-24gb", &[]);
    let good = Player::join(&node, "good", Hello::default());
    good.attach();
    let (connection, welcome, descriptors) = node.hello(Some("bad"), Some(GIB));
    let bytes = quota_wire::memory::file_bytes(descriptors[1].as_fd()).expect("a file") as usize;
    let total = node.devices()[0].memory_total_bytes;
    let junk = (any::<u64>(), prop::sample::select(vec![0u8, 1, 0x7f, 0x80, 0xff]), any::<bool>());
    let done = runner(40).run(&junk, |(seed, byte, is_even)| {
        // Noise, or one byte all over.
        let mut state = seed | 1;
        let mut noise = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        let page: Vec<u8> = (0..bytes).map(|_| if is_even { byte } else { noise() }).collect();
        rustix::io::pwrite(&descriptors[1], &page, 0).expect("it is writable");
        rustix::io::write(&descriptors[2], &1u64.to_ne_bytes()).expect("it has room");
        send_measure(&connection);
        let rows = node.processes();
        prop_assert!(rows.iter().all(|row| row.memory_used_bytes <= total), "{rows:?}");
        let row = rows.iter().find(|row| row.tenant == "good");
        prop_assert_eq!(row.map(|row| (row.pid, row.memory_used_bytes)), Some((std::process::id(), 0)));
        prop_assert!(node.devices()[0].memory_charged_bytes <= 2 * total);
        Ok(())
    });
    done.unwrap_or_else(|error| panic!("{error}"));
    assert!(good.pass(Instant::now() + PATIENCE), "the other comes through its gate");
    // And the daemon still does its own work in the page.
    let ledger = Mapping::<TenantMemory>::new(descriptors[1].as_fd(), Access::ReadWrite).expect("a ledger");
    rustix::io::pwrite(&descriptors[1], &vec![0; bytes], 0).expect("it is writable");
    let lock = LedgerLock::take(descriptors[1].as_fd()).expect("free");
    let slot = SlotId::new(welcome.slot).expect("in range");
    ledger.force(slot, good.place, Units::holding(Bytes(GIB)).expect("small"), lock.token());
    let row = node.processes().into_iter().find(|row| row.tenant == "bad").expect("it is shown");
    assert_eq!(row.memory_used_bytes, GIB);
}

fn send_measure(connection: &Connection) {
    connection.send(&Request::Measure { sequence: 1 }, &[]).expect("sent");
    assert!(matches!(next(connection), Reply::Measured { .. }));
}
