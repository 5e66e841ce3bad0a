//! Servers and clients in network namespaces.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use netlink::namespace;
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// The port of a server that reads and says nothing.
const SINK: u16 = 9001;
/// The port of a server that answers each message.
pub(super) const ECHO: u16 = 9002;
/// The bytes of a message and of its answer.
const MESSAGE: usize = 64;
/// The bytes that are written at once.
const BLOCK: usize = 128 << 10;

/// The end of a connection that a thread is. Each kind has a processor of its own, as on two machines: left to itself,
/// the scheduler puts both ends now on one and now on two, and that is a greater difference than any between the ways.
#[derive(Clone, Copy)]
enum End {
    Client,
    Server,
}

impl End {
    /// Keeps this thread on the processor of its kind, where the machine has that many.
    fn stay(self) {
        let mut all = CpuSet::new();
        all.set(self as usize);
        // A machine with one processor has no choice.
        let _ = sched_setaffinity(None, &all);
    }
}

/// A kind of load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Load {
    /// One connection, as many bytes as go through.
    Bytes,
    /// One connection, a message and its answer, one after the other.
    Messages,
    /// A connection for each message.
    Connections,
}

impl Load {
    pub(super) const ALL: [Self; 3] = [Self::Bytes, Self::Messages, Self::Connections];

    /// The port of the server.
    pub(super) fn port(self) -> u16 {
        if self == Self::Bytes { SINK } else { ECHO }
    }

    /// The unit of a figure, and what it is divided by.
    pub(super) fn unit(self) -> (&'static str, f64) {
        match self {
            Self::Bytes => ("MiB/s", f64::from(1 << 20)),
            Self::Messages => ("messages/s", 1.0),
            Self::Connections => ("connections/s", 1.0),
        }
    }
}

/// The figures of one run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shown {
    /// Bytes, messages or connections a second.
    pub(super) rate: f64,
    /// CPU seconds of this process, in which both ends are, for each of them.
    pub(super) cpu: f64,
}

/// Starts both servers in a namespace; the answers of one begin with `mark`. They end with the process.
pub(super) fn serve(namespace: &File, mark: u8) -> Result<()> {
    let listen =
        |port| namespace::within(namespace.as_fd(), || TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)));
    let sink = listen(SINK)?.context("cannot listen")?;
    let echo = listen(ECHO)?.context("cannot listen")?;
    std::thread::spawn(move || {
        End::Server.stay();
        let mut block = vec![0; BLOCK];
        for mut connection in sink.incoming().flatten() {
            while connection.read(&mut block).is_ok_and(|read| read > 0) {}
        }
    });
    std::thread::spawn(move || {
        End::Server.stay();
        for mut connection in echo.incoming().flatten() {
            let mut message = [0; MESSAGE];
            while connection.read_exact(&mut message).is_ok() {
                message[0] = mark;
                if connection.write_all(&message).is_err() {
                    break;
                }
            }
        }
    });
    Ok(())
}

/// Puts a load on a server from a namespace.
pub(super) fn run(namespace: &File, load: Load, to: Ipv4Addr, time: Duration) -> Result<Shown> {
    let to = SocketAddrV4::new(to, load.port());
    let before = spent();
    let (count, took) = namespace::within(namespace.as_fd(), || drive(load, to, time))?
        .with_context(|| format!("the load on {to} ended"))?;
    Ok(Shown { rate: count / took.as_secs_f64(), cpu: (spent() - before) / count.max(1.0) })
}

fn drive(load: Load, to: SocketAddrV4, time: Duration) -> io::Result<(f64, Duration)> {
    End::Client.stay();
    let began = Instant::now();
    let mut count = 0.0;
    match load {
        Load::Bytes => {
            let mut connection = TcpStream::connect(to)?;
            let block = vec![0; BLOCK];
            while began.elapsed() < time {
                connection.write_all(&block)?;
                count += BLOCK as f64;
            }
        }
        Load::Messages => {
            let mut connection = connect(to)?;
            while began.elapsed() < time {
                ask(&mut connection)?;
                count += 1.0;
            }
        }
        Load::Connections => {
            while began.elapsed() < time {
                ask(&mut connect(to)?)?;
                count += 1.0;
            }
        }
    }
    Ok((count, began.elapsed()))
}

/// The times from the first packet to the answer of connections one after another, sorted.
pub(super) fn connections(namespace: &File, to: Ipv4Addr, count: usize) -> Result<Vec<f64>> {
    let to = SocketAddrV4::new(to, ECHO);
    let mut times = namespace::within(namespace.as_fd(), || {
        (0..count)
            .map(|_| {
                let began = Instant::now();
                ask(&mut connect(to)?)?;
                Ok(began.elapsed().as_secs_f64())
            })
            .collect::<io::Result<Vec<f64>>>()
    })?
    .with_context(|| format!("{to} does not answer"))?;
    times.sort_by(f64::total_cmp);
    Ok(times)
}

/// The mark of the server that answers a new connection.
pub(super) fn mark(to: Ipv4Addr) -> io::Result<u8> {
    ask(&mut connect(SocketAddrV4::new(to, ECHO))?)
}

/// A connection that leaves nothing behind at its end: a port that waits could not be used again by the next thousands.
fn connect(to: SocketAddrV4) -> io::Result<TcpStream> {
    let connection = TcpStream::connect_timeout(&to.into(), Duration::from_secs(5))?;
    connection.set_nodelay(true)?;
    rustix::net::sockopt::set_socket_linger(&connection, Some(Duration::ZERO))?;
    Ok(connection)
}

fn ask(connection: &mut TcpStream) -> io::Result<u8> {
    let mut message = [0; MESSAGE];
    connection.write_all(&message)?;
    connection.read_exact(&mut message)?;
    Ok(message[0])
}

/// CPU seconds of this process.
fn spent() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
