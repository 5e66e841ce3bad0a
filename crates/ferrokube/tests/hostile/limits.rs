//! Clients that want more than the server has for one.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use std::{fs, io, thread};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use testkit::{Server, eventually};

use crate::hostile::alive::serves_others;
use crate::hostile::wire::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, Http2, PING, RST_STREAM, SETTINGS, Wire,
    tls,
};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A body of the greatest size, with very many small parts.
fn large_body() -> String {
    let data: BTreeMap<String, &str> = (0..150_000).map(|n| (format!("k{n}"), "v")).collect();
    json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"generateName": "large-"}, "data": data})
        .to_string()
}

#[test]
fn long_work_holds_up_nobody() -> Result<()> {
    let server = Server::start(&[])?;
    let body = large_body();
    let path = format!("{MAPS}?dryRun=All");
    let mut watch = server.get(&format!("{MAPS}?watch=true&fieldSelector=metadata.name=small")).stream()?;
    let left = AtomicUsize::new(8);
    thread::scope(|scope| -> Result<()> {
        for _ in 0..left.load(Ordering::SeqCst) {
            scope.spawn(|| {
                let request = server.request("POST", &path).body("application/json", body.clone());
                let answer = request.send();
                left.fetch_sub(1, Ordering::SeqCst);
                answer.map(drop)
            });
        }
        // All requests are there, and some are being worked on.
        eventually("the work", || Ok((in_flight(&server, "mutating")? >= 4).then_some(())))?;
        for n in 0..3 {
            serves_others(&server)?;
            let value = n.to_string();
            let map = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "small"}, "data": {"n": value}});
            if n == 0 {
                server.create(MAPS, &map)?;
            } else {
                server.request("PUT", &format!("{MAPS}/small")).json(&map).send()?.expect(200)?;
            }
            ensure!(watch.json()?["object"]["data"]["n"] == value.as_str());
        }
        ensure!(left.load(Ordering::SeqCst) > 0, "they waited for the long work");
        // A request whose time is up gets its answer, whether its work has ended, was begun or not. A machine may be
        // fast enough for one of these times, and then the work was done.
        for time in ["1s", "400ms", "150ms", "50ms"] {
            let late = server.request("POST", &format!("{path}&timeout={time}"));
            let late = late.body("application/json", body.clone()).send()?;
            if late.status != 201 {
                let message = &late.expect(504)?.json()?["message"];
                ensure!(message == "Timeout: request did not complete within the allotted timeout");
                return Ok(());
            }
        }
        bail!("no time was too short")
    })?;
    serves_others(&server)
}

/// The number of requests with a seat.
fn in_flight(server: &Server, kind: &str) -> Result<usize> {
    let metrics = server.get("/metrics").send()?.expect(200)?.text();
    let name = format!("apiserver_current_inflight_requests{{request_kind=\"{kind}\"}} ");
    let line = metrics.lines().find_map(|line| line.strip_prefix(&name)).context("no such metric")?;
    Ok(line.parse()?)
}

/// Makes a user that may do everything, but is no superuser; returns its token.
fn user(server: &Server, name: &str) -> Result<String> {
    server.kubectl(&["create", "serviceaccount", name])?;
    let account = format!("--serviceaccount=default:{name}");
    server.kubectl(&["create", "clusterrolebinding", name, "--clusterrole=cluster-admin", &account])?;
    Ok(server.kubectl(&["create", "token", name])?.trim().to_owned())
}

#[test]
fn slow_bodies_take_nobodys_place() -> Result<()> {
    let server = Server::start(&[])?;
    let (slow, other) = (user(&server, "slow")?, user(&server, "other")?);
    let mut connection = Http2::connect(&server, false)?;
    let authorization = format!("Bearer {slow}");
    let more: [(&str, &[u8]); 3] = [
        ("authorization", authorization.as_bytes()),
        ("content-type", b"application/json"),
        ("content-length", b"1000"),
    ];
    let head = |path: &str| [Http2::request("POST", path), Http2::block(&more)].concat();
    for stream in (0..400).map(|n| 2 * n + 1) {
        connection.frame(HEADERS, END_HEADERS, stream, &head(MAPS))?;
        connection.frame(DATA, 0, stream, b"{\"kind\":")?;
    }
    // Further requests on the same connection come after these. The body has a time limit, too.
    connection.frame(HEADERS, END_HEADERS, 2001, &head(&format!("{MAPS}?timeout=1s")))?;
    loop {
        let frame = connection.next()?.context("the connection ended")?;
        if frame.kind == DATA && frame.stream == 2001 {
            let status: Value = serde_json::from_slice(&frame.payload)?;
            ensure!(status["code"] == 504, "{status}");
            break;
        }
    }
    ensure!(in_flight(&server, "mutating")? == 0, "a slow body takes a seat");
    for (n, token) in [slow, other].iter().enumerate() {
        let map = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": format!("m{n}")}});
        let request = server.anonymous("POST", MAPS).header("Authorization", &format!("Bearer {token}"));
        request.json(&map).send()?.expect(201)?;
    }
    serves_others(&server)
}

/// Open files of a server.
fn files(server: &Server) -> Result<usize> {
    Ok(fs::read_dir(format!("/proc/{}/fd", server.pid()))?.count())
}

#[test]
fn strangers_leave_room_for_others() -> Result<()> {
    let server = Server::start_with_descriptors(200, 1024)?;
    let limits = fs::read_to_string(format!("/proc/{}/limits", server.pid()))?;
    let line = limits.lines().find(|l| l.starts_with("Max open files")).context("no limit")?;
    ensure!(line.split_whitespace().nth(3) == Some("1024"), "the soft limit is not the hard one: {line}");

    let readyz = "GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut known = Wire::h1(&server)?;
    known.send(readyz)?;
    ensure!(known.status()? == 200);
    let before = files(&server)?;
    let tls = tls(&server, false, "h2")?;
    let mut idle: Vec<TcpStream> = Vec::new();
    let mut shaken = Vec::new();
    for n in 0..1500 {
        // Some connections are silent, some begin a handshake, some end it.
        let Ok(stream) = TcpStream::connect(("127.0.0.1", server.port())) else { continue };
        if n % 3 == 0 {
            // The connection may be gone already.
            let _ = io::Write::write_all(&mut &stream, &[22, 3, 1, 1]);
        }
        idle.push(stream);
        if n % 50 == 0 {
            shaken.extend(Wire::connect(&server, &tls));
        }
    }
    let more = files(&server)?.saturating_sub(before);
    ensure!(more <= 64 + 10, "{more} of one address are let in");
    // A known client stays, and a new one finds a place, at the latest when the others have been idle for a while.
    known.send("GET /api/v1/namespaces/default HTTP/1.1\r\nHost: a\r\n\r\n")?;
    ensure!(until_status(&mut known)? == 200, "a known one was ended");
    eventually("a place for another", || Ok(serves_others(&server).ok()))?;
    drop((idle, shaken));
    serves_others(&server)
}

/// The status of the next answer, after the rest of the one before.
fn until_status(wire: &mut Wire) -> Result<u16> {
    let mut seen = Vec::new();
    loop {
        let mut byte = [0];
        ensure!(io::Read::read(&mut wire.0, &mut byte)? == 1, "the connection ended");
        seen.extend(byte);
        if let Some(at) = seen.windows(9).position(|w| w == b"HTTP/1.1 ").filter(|at| seen.len() >= at + 12) {
            return Ok(std::str::from_utf8(&seen[at + 9..at + 12])?.parse()?);
        }
    }
}

#[test]
fn headers_are_counted_in_bytes() -> Result<()> {
    let server = Server::start(&[])?;
    let first = |count: usize| -> Result<u16> {
        let mut wire = Wire::h1(&server)?;
        let mut headers = String::new();
        for n in 0..count {
            let _ = write!(headers, "x-{n}: 1\r\n");
        }
        wire.send(format!("GET /api/v1/namespaces HTTP/1.1\r\nHost: a\r\n{headers}\r\n"))?;
        wire.status()
    };
    ensure!(first(101)? == 200 && first(900)? == 200);
    // DIFFERENCE: so many headers do not fit into the table that is made for each request.
    ensure!(first(1_100)? == 431 && first(25_000)? == 431 && first(60_000)? == 431);
    let second = |count: usize| -> Result<Vec<u8>> {
        let mut connection = Http2::connect(&server, true)?;
        let names: Vec<String> = (0..count).map(|n| format!("x-{n}")).collect();
        let headers: Vec<(&str, &[u8])> = names.iter().map(|n| (n.as_str(), &b"1"[..])).collect();
        let block = [Http2::request("GET", "/api/v1/namespaces"), Http2::block(&headers)].concat();
        connection.frame(HEADERS, END_HEADERS | END_STREAM, 1, &block)?;
        loop {
            let frame = connection.next()?.context("the connection ended")?;
            if frame.kind == HEADERS {
                return Ok(frame.payload);
            }
        }
    };
    // The first octet of an answer's headers is its status; 200 is in HPACK's own table.
    ensure!(second(101)?[0] == 0x88 && second(20_000)?[0] == 0x88);
    ensure!(second(25_000)?[0] != 0x88);
    serves_others(&server)
}

/// Whether the server announces the end of a connection, before or after an answer.
fn says_goodbye(connection: &mut Http2) -> Result<bool> {
    if connection.frame(PING, 0, 0, b"are you?").is_err() {
        return Ok(true);
    }
    let (mut pinged, mut answered) = (false, false);
    while let Some(frame) = connection.next()? {
        match frame.kind {
            GOAWAY => return Ok(true),
            PING => pinged |= frame.payload == b"are you?",
            // The flag of the same number says of settings that they are taken.
            DATA | HEADERS => answered |= frame.flags & END_STREAM != 0,
            _ => {}
        }
        if pinged && answered {
            return Ok(false);
        }
    }
    Ok(true)
}

#[test]
fn http2_of_strangers_ends() -> Result<()> {
    let server = Server::start(&[])?;
    let ask = |admin: bool, more: &[(&str, &[u8])], path: &str| -> Result<bool> {
        let mut connection = Http2::connect(&server, admin)?;
        let block = [Http2::request("GET", path), Http2::block(more)].concat();
        // The answer may come before the announcement, so that another request shows it. Or the connection has ended
        // before that request is sent.
        for stream in [1, 3] {
            let sent = connection.frame(HEADERS, END_HEADERS | END_STREAM, stream, &block);
            if sent.is_err() || says_goodbye(&mut connection)? {
                return Ok(true);
            }
        }
        Ok(false)
    };
    ensure!(ask(false, &[], "/readyz")?, "an anonymous client with access");
    ensure!(ask(false, &[], "/api/v1/namespaces")?, "an anonymous client without access");
    ensure!(ask(false, &[("authorization", b"Bearer x")], "/readyz")?, "a refused client");
    ensure!(!ask(true, &[], "/readyz")?, "a known client");
    serves_others(&server)
}

/// Sends bytes until the other end takes no more, or so many times.
fn flood(connection: &mut Http2, times: usize, bytes: &[u8]) {
    // A peer that does not read is not written to for ever either.
    let _ = connection.0.0.sock.set_write_timeout(Some(Duration::from_secs(1)));
    for _ in 0..times {
        if connection.0.send(bytes).is_err() {
            return;
        }
    }
}

/// Requests that are opened and taken back at once, with streams of their own from the first.
fn taken_back(requests: u32) -> Vec<u8> {
    let request = Http2::request("GET", "/api/v1/namespaces");
    let one = |n: u32| {
        let stream = 2 * n + 1;
        let open = Http2::bytes(HEADERS, END_HEADERS | END_STREAM, stream, &request);
        [open, Http2::bytes(RST_STREAM, 0, stream, &[0, 0, 0, 8])].concat()
    };
    (0..requests).flat_map(one).collect()
}

#[test]
fn calls_that_end_at_once_do_not_end_their_connection() -> Result<()> {
    let server = Server::start(&[])?;
    let mut connection = Http2::connect(&server, true)?;
    // A program with so many calls under way may end all of them in one moment.
    connection.0.send(taken_back(500))?;
    connection.frame(HEADERS, END_HEADERS | END_STREAM, 1001, &Http2::request("GET", "/readyz"))?;
    ensure!(!says_goodbye(&mut connection)?, "the connection has ended");
    Ok(())
}

#[test]
fn floods_of_frames_end_their_connection() -> Result<()> {
    let server = Server::start(&[])?;
    let request = Http2::request("GET", "/api/v1/namespaces");
    let mut resets = Http2::connect(&server, true)?;
    flood(&mut resets, 1, &taken_back(20_000));
    serves_others(&server)?;

    let mut endless = Http2::connect(&server, true)?;
    endless.frame(HEADERS, 0, 1, &request)?;
    let part = Http2::block(&[("x", &[b'a'; 15_000])]);
    flood(&mut endless, 10_000, &Http2::bytes(CONTINUATION, 0, 1, &part));
    ensure!(
        endless.0.send(Http2::bytes(CONTINUATION, 0, 1, &part)).is_err(),
        "headers without an end are read"
    );
    serves_others(&server)?;

    for kind in [PING, SETTINGS] {
        let mut connection = Http2::connect(&server, true)?;
        let payload: &[u8] = if kind == PING { b"12345678" } else { &[] };
        let many: Vec<u8> = (0..1000).flat_map(|_| Http2::bytes(kind, 0, 0, payload)).collect();
        let before = memory(&server)?;
        flood(&mut connection, 200, &many);
        let grown = memory(&server)?.saturating_sub(before);
        ensure!(grown < 32 << 10, "{grown} KiB wait for a client that does not read");
        serves_others(&server)?;
    }
    Ok(())
}

/// The memory of a server, in KiB.
fn memory(server: &Server) -> Result<usize> {
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid()))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}
