//! DNS: the memory of a cluster's names, the CPU time of an answer, and queries over loopback, beside unbound where it
//! is installed, and beside CoreDNS where its binary is named.

mod rivals;

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args as ClapArgs;
use client::{Cached, Change};
use component::Shutdown;
use dns::packet::Transport;
use dns::resolver::{Origin, Resolver, Step};
use dns::zone::views::{NamespaceView, ServiceView, SliceView};
use dns::{Config, Event, Server, Upstreams, Zone};
use hickory_proto::op::{Message, MessageType, OpCode};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{RData, Record};
use jiff::Timestamp;
use serde_json::{Value, json};

use self::rivals::Rival;
use crate::process;
use crate::table::{Table, figure};

const MIB: f64 = (1 << 20) as f64;
/// Questions that wait for an answer at a time.
const WINDOW: usize = 64;
/// Answers that are made in memory alone.
const IN_MEMORY: u32 = 1_000_000;

/// How much to measure.
#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// Services
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(100..=50_000))]
    services: u32,
    /// Endpoints of each
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100))]
    endpoints: u32,
    /// Seconds of load on each server in each of the nine rounds
    #[arg(long, value_name = "N", default_value_t = 2)]
    seconds: u64,
    /// A resolver to put under the same load, if it is there
    #[arg(long, value_name = "FILE", default_value = "/usr/sbin/unbound")]
    unbound: PathBuf,
    /// A CoreDNS to put under the same load; its plugin `kubernetes` reads the names from an API server
    #[arg(long, value_name = "FILE")]
    coredns: Option<PathBuf>,
    /// FerroKube's binary for that API server [default: a release build, made first]
    #[arg(long, value_name = "FILE", requires = "coredns")]
    bin: Option<PathBuf>,
}

/// Measures, and prints tables.
pub(crate) fn run(args: &Args, root: &Path) -> Result<()> {
    let (own, address, resolver) = serve(args)?;
    in_memory(&resolver)?;
    let mut others = Vec::new();
    others.extend(rivals::unbound(args)?);
    others.extend(rivals::coredns(args, root)?);
    over_loopback(args, address, &own, &others)
}

/// A server on a thread of its own.
struct Own {
    shutdown: Shutdown,
    handle: tokio::runtime::Handle,
}

impl Own {
    /// The CPU time of the server's thread, in seconds.
    fn cpu(&self) -> Result<f64> {
        let (tell, told) = mpsc::channel();
        self.handle.spawn(async move {
            let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
            let _ = tell.send(time.tv_sec as f64 + time.tv_nsec as f64 / 1e9);
        });
        told.recv_timeout(Duration::from_secs(10)).context("the server's thread does not answer")
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        self.shutdown.stop();
    }
}

/// Starts a server with all names, and prints their memory.
fn serve(args: &Args) -> Result<(Own, SocketAddr, Arc<Resolver>)> {
    let (tell, told) = mpsc::channel();
    let shutdown = Shutdown::new();
    let stop = shutdown.clone();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut config = Config::new(vec![(Ipv4Addr::LOCALHOST, 0).into()], "cluster.local".parse()?);
            config.upstreams = Upstreams::None;
            let server = Server::start(config, &stop).await?;
            let first = *server.addresses().first().context("no address")?;
            tell.send((
                tokio::runtime::Handle::current(),
                first,
                server.resolver().clone(),
                server.zone().clone(),
            ))?;
            stop.wait().await;
            stop.finish().await;
            anyhow::Ok(())
        })
    });
    let (handle, address, resolver, zone) =
        told.recv_timeout(Duration::from_secs(10)).context("the server did not start")?;
    fill(args, &zone)?;
    Ok((Own { shutdown, handle }, address, resolver))
}

/// Puts all names into a zone, and prints their memory: that of the objects as informers keep them, too.
fn fill(args: &Args, zone: &Zone) -> Result<()> {
    let resident = || process::memory(&[std::process::id()]).map(|m| m.rss * MIB);
    let ports = json!([{"name": "http", "port": 80, "protocol": "TCP"}]);
    zone.apply(
        &Event::Namespace(added::<NamespaceView>(&json!({"metadata": {"name": "ns"}}))?),
        Timestamp::UNIX_EPOCH,
    );
    let before = resident()?;
    for n in 0..args.services {
        let meta = |name: String| {
            json!({"name": name, "namespace": "ns", "resourceVersion": (1_000_000 + n).to_string(),
            "labels": {"kubernetes.io/service-name": name_of(n)}})
        };
        let cluster_ip = Ipv4Addr::from(0x0a60_0000 + n);
        let spec = json!({"clusterIP": cluster_ip, "clusterIPs": [cluster_ip], "ports": ports});
        let service = added::<ServiceView>(&json!({"metadata": meta(name_of(n)), "spec": spec}))?;
        let endpoints: Vec<Value> = (0..args.endpoints)
            .map(|i| json!({"addresses": [Ipv4Addr::from(0x0b00_0000 + n * args.endpoints + i)]}))
            .collect();
        let slice = json!({"metadata": meta(format!("{}-x7k2p", name_of(n))), "addressType": "IPv4", "ports": ports,
            "endpoints": endpoints});
        let slice = added::<SliceView>(&slice)?;
        zone.apply(&Event::Service(service), Timestamp::UNIX_EPOCH);
        zone.apply(&Event::Slice(slice), Timestamp::UNIX_EPOCH);
    }
    zone.set_synced();
    let bytes = resident()? - before;
    let mut table = Table::new(&["memory", "MiB", "bytes a Service"]);
    let title = format!("{} Services of {} endpoints", args.services, args.endpoints);
    table.row([title, figure(bytes / MIB), figure(bytes / f64::from(args.services))]);
    println!("{table}");
    Ok(())
}

fn added<T: Cached>(object: &Value) -> Result<Change<T>> {
    Ok(Change::Added(Arc::new(T::decode(object.to_string().as_bytes())?)))
}

fn name_of(n: u32) -> String {
    format!("service-{n:05}")
}

/// A question for a Service's address.
fn question(id: u16, n: u32) -> Vec<u8> {
    let mut packet = Vec::with_capacity(64);
    for word in [id, 0x0100, 1, 0, 0, 0] {
        packet.extend(word.to_be_bytes());
    }
    for label in [name_of(n).as_str(), "ns", "svc", "cluster", "local"] {
        packet.push(label.len() as u8);
        packet.extend(label.as_bytes());
    }
    packet.extend([0, 0, 1, 0, 1]);
    packet
}

/// Prints the time of an answer without sockets, and that of hickory for the same bytes.
fn in_memory(resolver: &Resolver) -> Result<()> {
    let packet = question(7, 77);
    let origin = Origin { transport: Transport::Udp, source: Ipv4Addr::LOCALHOST.into() };
    let mut out = Vec::with_capacity(512);
    let each = |began: Instant| began.elapsed().as_secs_f64() * 1e9 / f64::from(IN_MEMORY);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        let began = Instant::now();
        for _ in 0..IN_MEMORY {
            ensure!(matches!(resolver.step(&packet, origin, &mut out), Step::Reply), "no answer");
        }
        ours.push(each(began));
        let began = Instant::now();
        for _ in 0..IN_MEMORY {
            std::hint::black_box(by_hickory(std::hint::black_box(&packet))?);
        }
        theirs.push(each(began));
    }
    let median = |times: &mut Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    let (ours, theirs) = (median(&mut ours), median(&mut theirs));
    let mut table = Table::new(&["an answer in memory", "ns", "ratio"]);
    table.row(["read, found, written and counted".to_owned(), figure(ours), "1.00".to_owned()]);
    table.row([
        "decoded and encoded alone, by hickory".to_owned(),
        figure(theirs),
        format!("{:.2}", theirs / ours),
    ]);
    println!("{table}");
    Ok(())
}

/// Decodes a question and encodes an answer by hickory, without any search.
fn by_hickory(packet: &[u8]) -> Result<Vec<u8>> {
    let asked = Message::from_vec(packet)?;
    let mut answer = Message::new(asked.metadata.id, MessageType::Response, OpCode::Query);
    for query in &asked.queries {
        answer.add_query(query.clone());
        answer.add_answer(Record::from_rdata(query.name().clone(), 5, RData::A(A::new(10, 96, 0, 77))));
    }
    Ok(answer.to_vec()?)
}

/// Asks a server for a time with many questions under way; how many were answered.
fn load(address: SocketAddr, services: u32, time: Duration) -> Result<u64> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.connect(address)?;
    socket.set_read_timeout(Some(Duration::from_millis(500)))?;
    let questions: Vec<Vec<u8>> = (0..4096).map(|i| question(i as u16, (i * 7919) % services)).collect();
    let (mut next, mut answered, mut buffer) = (0usize, 0u64, [0; 512]);
    let mut send = || {
        next += 1;
        socket.send(&questions[next % questions.len()])
    };
    let began = Instant::now();
    for _ in 0..WINDOW {
        send()?;
    }
    while began.elapsed() < time {
        match socket.recv(&mut buffer) {
            // One answer, without an error.
            Ok(length) => {
                ensure!(
                    length > 12 && buffer[3].trailing_zeros() >= 4 && buffer[7] == 1,
                    "not the answer: {:?}",
                    &buffer[..12]
                );
                answered += 1;
                send()?;
            }
            // Some were lost.
            Err(_) => drop(send()?),
        }
    }
    Ok(answered)
}

/// Puts our server and the others under the same load in turn, and prints the CPU time of an answer.
fn over_loopback(args: &Args, address: SocketAddr, own: &Own, others: &[Rival]) -> Result<()> {
    let time = Duration::from_secs(args.seconds);
    let mut ours = Vec::new();
    let mut theirs = vec![Vec::new(); others.len()];
    for _ in 0..9 {
        let before = own.cpu()?;
        let answered = load(address, args.services, time)?;
        ours.push(answered as f64 / (own.cpu()? - before));
        for (other, figures) in others.iter().zip(&mut theirs) {
            let before = process::cpu(&[other.pid])?;
            let answered = load(other.address, args.services, time)?;
            figures.push(answered as f64 / (process::cpu(&[other.pid])? - before));
        }
    }
    let median = |all: &mut Vec<f64>| {
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied().context("no figures")
    };
    let ours = median(&mut ours)?;
    let mut table =
        Table::new(&["over UDP on loopback", "queries a second and core", "dns beside it", "RSS, MiB"]);
    table.row(["dns".to_owned(), figure(ours), "1.00".to_owned(), "-".to_owned()]);
    for (other, mut figures) in others.iter().zip(theirs) {
        let theirs = median(&mut figures)?;
        let memory = process::memory(&[other.pid])?.rss;
        table.row([other.name.to_owned(), figure(theirs), format!("{:.2}", ours / theirs), figure(memory)]);
    }
    println!("{table}");
    Ok(())
}
