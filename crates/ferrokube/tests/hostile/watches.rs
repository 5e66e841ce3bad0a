//! Watches that nobody reads.

use std::io::{self, Read};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testkit::Server;

use crate::hostile::alive::serves_others;
use crate::hostile::wire::{DATA, END_HEADERS, END_STREAM, HEADERS, Http2, Wire};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WINDOW_UPDATE: u8 = 8;

/// The number of changes of a large object, and its size.
const CHANGES: usize = 44;
const SIZE: usize = 900_000;

/// The most bytes that a reader gets who read nothing before: twice the bytes that may wait for a watch, and those in
/// sockets.
const MOST: usize = 36 * SIZE;

/// Changes the object once.
fn change(writer: &mut Wire, number: usize) -> Result<()> {
    let data = format!("{number}{}", "x".repeat(SIZE));
    let object =
        json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "large"}, "data": {"k": data}});
    let body = object.to_string();
    let (method, path) =
        if number == 0 { ("POST", MAPS.to_owned()) } else { ("PUT", format!("{MAPS}/large")) };
    let (kind, length) = ("application/json", body.len());
    writer.send(format!(
        "{method} {path} HTTP/1.1\r\nHost: a\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{body}"
    ))?;
    let head = writer.head()?;
    ensure!(head.starts_with("HTTP/1.1 20"), "{head}");
    let length = head.lines().find_map(|l| l.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
    if let Some(length) = length {
        let mut answer = vec![0; length];
        writer.0.read_exact(&mut answer)?;
        return Ok(());
    }
    let (count, whole) = until(writer, b"\r\n0\r\n\r\n")?;
    ensure!(whole, "the answer ended after {count} bytes");
    Ok(())
}

/// The number of bytes up to and with an end, and whether it comes before the connection ends.
fn until(wire: &mut Wire, end: &[u8]) -> Result<(usize, bool)> {
    let (mut count, mut last, mut buffer) = (0, Vec::new(), vec![0; 1 << 16]);
    while !last.ends_with(end) {
        let n = match wire.0.read(&mut buffer) {
            Ok(0) => return Ok((count, false)),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok((count, false)),
            read => read?,
        };
        count += n;
        last.extend(&buffer[..n]);
        last.drain(..last.len().saturating_sub(end.len()));
    }
    Ok((count, true))
}

#[test]
fn what_waits_for_them_is_bounded() -> Result<()> {
    let server = Server::start(&[])?;
    let mut reader = server.get(&format!("{MAPS}?watch=true&fieldSelector=metadata.name=large")).stream()?;
    let watch = format!("GET {MAPS}?watch=true HTTP/1.1\r\nHost: a\r\n");
    let mut first = Wire::h1(&server)?;
    rustix::net::sockopt::set_socket_recv_buffer_size(&first.0.sock, 64 << 10)?;
    first.send(format!("{watch}\r\n"))?;
    ensure!(first.status()? == 200);
    let mut socket = Wire::h1(&server)?;
    rustix::net::sockopt::set_socket_recv_buffer_size(&socket.0.sock, 64 << 10)?;
    let key = "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==";
    socket.send(format!(
        "{watch}Connection: Upgrade\r\nUpgrade: websocket\r\nOrigin: https://a\r\n{key}\r\n\r\n"
    ))?;
    ensure!(socket.status()? == 101);
    let mut second = Http2::connect(&server, true)?;
    let request = Http2::request("GET", &format!("{MAPS}?watch=true"));
    second.frame(HEADERS, END_HEADERS | END_STREAM, 1, &request)?;
    while second.next()?.context("no answer")?.kind != HEADERS {}

    let mut writer = Wire::h1(&server)?;
    for number in 0..CHANGES {
        change(&mut writer, number)?;
        let event: Value = reader.json()?;
        let data = event["object"]["data"]["k"].as_str().context("no data")?;
        ensure!(data.trim_end_matches('x') == number.to_string(), "a reader gets all");
    }

    // The server need not wait until a silent reader takes the end, too.
    let (got, _) = until(&mut first, b"\r\n0\r\n\r\n")?;
    ensure!(got < MOST, "{got} bytes waited for HTTP/1");
    let got = socket.rest()?.len();
    ensure!(got < MOST, "{got} bytes waited for a WebSocket");
    for stream in [0_u32, 1] {
        second.frame(WINDOW_UPDATE, 0, stream, &(1_u32 << 30).to_be_bytes())?;
    }
    let mut got = 0;
    loop {
        let frame = second.next()?.context("the connection ended")?;
        got += frame.payload.len();
        if frame.kind == DATA && frame.flags & END_STREAM != 0 {
            break;
        }
    }
    ensure!(got < MOST, "{got} bytes waited for HTTP/2");
    serves_others(&server)
}
