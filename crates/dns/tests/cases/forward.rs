//! Servers that are forwarded to: honest ones, and others.

use std::fs;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};

use dns::{ResolvConf, StubDomain};
use serde_json::json;
use tokio::net::TcpListener;

use super::*;

/// A server that answers datagrams as a function says, and TCP as another does.
struct Upstream {
    address: SocketAddr,
    /// How many datagrams came.
    asked: Arc<AtomicUsize>,
    shutdown: Shutdown,
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.shutdown.stop();
    }
}

/// Starts a server. Each datagram gets the packets that `answer` makes of it.
async fn upstream<F>(answer: impl Fn(Vec<u8>) -> F + Send + Sync + 'static) -> Upstream
where
    F: Future<Output = Vec<Vec<u8>>> + Send,
{
    let shutdown = Shutdown::new();
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let address = listener.local_addr().unwrap();
    let socket = Arc::new(UdpSocket::bind(address).await.unwrap());
    let asked = Arc::new(AtomicUsize::new(0));
    let (count, answer, stop) = (asked.clone(), Arc::new(answer), shutdown.clone());
    shutdown.spawn_one(async move {
        let mut packet = vec![0; 4096];
        while let Some(Ok((length, peer))) = stop.run(socket.recv_from(&mut packet)).await {
            if kind_of(&packet[..length]) != 13 {
                count.fetch_add(1, Ordering::Relaxed);
            }
            let (answer, socket, asked) = (answer.clone(), socket.clone(), packet[..length].to_vec());
            tokio::spawn(async move {
                for packet in answer(asked).await {
                    let _ = socket.send_to(&packet, peer).await;
                }
            });
        }
    });
    let stop = shutdown.clone();
    shutdown.spawn_one(async move {
        while let Some(Ok((mut stream, _))) = stop.run(listener.accept()).await {
            let asked = read_framed(&mut stream).await;
            send_framed(&mut stream, &a(&asked, &[[10, 9, 9, 9]; 100], 60)).await;
        }
    });
    Upstream { address, asked, shutdown }
}

/// The end of a packet's question.
fn question_end(packet: &[u8]) -> usize {
    let mut at = 12;
    while packet[at] != 0 {
        at += usize::from(packet[at]) + 1;
    }
    at + 5
}

fn kind_of(packet: &[u8]) -> u16 {
    let end = question_end(packet);
    u16::from_be_bytes([packet[end - 4], packet[end - 3]])
}

/// An answer to a packet, with flags and records.
fn answer(asked: &[u8], flags: u16, counts: [u16; 3], records: &[u8]) -> Vec<u8> {
    let mut out = asked[..2].to_vec();
    out.extend((0x8080 | flags).to_be_bytes());
    for count in [1, counts[0], counts[1], counts[2]] {
        out.extend(count.to_be_bytes());
    }
    out.extend(&asked[12..question_end(asked)]);
    out.extend(records);
    out
}

/// An answer with addresses.
fn a(asked: &[u8], addresses: &[[u8; 4]], ttl: u8) -> Vec<u8> {
    let record = |ip: &[u8; 4]| [&b"\xc0\x0c\0\x01\0\x01\0\0\0"[..], &[ttl], b"\0\x04", ip].concat();
    answer(asked, 0, [addresses.len() as u16, 0, 0], &addresses.iter().flat_map(record).collect::<Vec<u8>>())
}

/// The start of the root's zone, with a denial's time.
fn soa(minimum: u8) -> Vec<u8> {
    let mut record = b"\0\0\x06\0\x01\0\0\0\x3c\0\x16\0\0".to_vec();
    record.extend([0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, minimum]);
    record
}

async fn forwarding(servers: &[&Upstream]) -> Run {
    start(Config { upstreams: Upstreams::Servers(servers.iter().map(|u| u.address).collect()), ..config() })
        .await
}

async fn words(run: &Run, name: &str) -> Words {
    Words::from(&udp(run.address(), &question(9, name, 1, Some(1232))).await[..])
}

#[tokio::test]
async fn answers_are_passed_on_and_kept() {
    let server = upstream(|asked| async move { vec![a(&asked, &[[10, 1, 1, 1]], 60)] }).await;
    let run = forwarding(&[&server]).await;
    let got = words(&run, "www.Example.com").await;
    assert_eq!(
        (got.rcode.as_str(), &got.answers[..]),
        ("NOERROR", &["www.Example.com. 30 IN A 10.1.1.1".to_owned()][..])
    );
    let got = words(&run, "WWW.example.COM").await;
    assert!(
        got.answers[0].starts_with("WWW.example.COM. ") && got.answers[0].ends_with(" IN A 10.1.1.1"),
        "{got:?}"
    );
    assert_eq!(server.asked.load(Ordering::Relaxed), 1, "the second answer was kept");
    let raw = message(&udp(run.address(), &question(77, "www.example.com", 1, None)).await);
    assert_eq!(
        (raw.metadata.id, raw.metadata.recursion_available, raw.metadata.authoritative, raw.edns),
        (77, true, false, None)
    );
    let metrics = run.metrics();
    for line in [
        r#"coredns_cache_hits_total{server="dns://:"#,
        r#"zone=".",view="",proto="udp",family="1",type="A"} 3"#,
        r#"coredns_proxy_request_duration_seconds_count{proxy_name="forward",to=""#,
        "coredns_panics_total 0\n",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    run.shutdown.finish().await;
}

#[tokio::test]
async fn denials_are_kept_as_long_as_their_zone_says() {
    let server = upstream(|asked| async move {
        let unkept = asked[13] == b'u';
        vec![if unkept { answer(&asked, 3, [0, 0, 0], &[]) } else { answer(&asked, 3, [0, 1, 0], &soa(9)) }]
    })
    .await;
    let run = forwarding(&[&server]).await;
    let denied = words(&run, "kept.example").await;
    assert_eq!((denied.rcode.as_str(), denied.authority.len()), ("NXDOMAIN", 1));
    assert!(denied.authority[0].starts_with(". 9 IN SOA"), "{denied:?}");
    words(&run, "kept.example").await;
    assert_eq!(server.asked.load(Ordering::Relaxed), 1);
    words(&run, "unkept.example").await;
    words(&run, "unkept.example").await;
    assert_eq!(server.asked.load(Ordering::Relaxed), 3);
    run.shutdown.finish().await;
}

#[tokio::test]
async fn lies_are_passed_over() {
    let server = upstream(|asked| async move {
        let true_one = a(&asked, &[[10, 1, 1, 1]], 60);
        let lie = a(&asked, &[[6, 6, 6, 6]], 60);
        let (mut other_id, mut other_name, mut other_kind, mut query) =
            (lie.clone(), lie.clone(), lie.clone(), lie.clone());
        other_id[0] ^= 1;
        other_name[13] ^= 1;
        let end = question_end(&lie);
        other_kind[end - 3] = 28;
        query[2] &= 0x7f;
        vec![other_id, other_name, other_kind, query, vec![], vec![1, 2, 3], true_one]
    })
    .await;
    let run = forwarding(&[&server]).await;
    assert_eq!(words(&run, "www.example.com").await.answers, ["www.example.com. 30 IN A 10.1.1.1"]);
    run.shutdown.finish().await;
}

#[tokio::test]
async fn cut_answers_are_fetched_over_tcp() {
    let server = upstream(|asked| async move { vec![answer(&asked, 0x0200, [0, 0, 0], &[])] }).await;
    let run = forwarding(&[&server]).await;
    let cut = message(&udp(run.address(), &question(1, "long.example", 1, Some(1232))).await);
    assert!(cut.metadata.truncation && cut.answers.len() > 60, "{}", cut.answers.len());
    let whole = message(&tcp(run.address(), &question(1, "long.example", 1, None)).await);
    assert_eq!((whole.metadata.truncation, whole.answers.len()), (false, 100));
    run.shutdown.finish().await;
}

#[tokio::test]
async fn old_servers_are_asked_without_edns() {
    let server = upstream(|asked| async move {
        let edns = asked[11] == 1;
        vec![if edns { answer(&asked, 1, [0, 0, 0], &[]) } else { a(&asked, &[[10, 1, 1, 1]], 60) }]
    })
    .await;
    let run = forwarding(&[&server]).await;
    assert_eq!(words(&run, "www.example.com").await.answers.len(), 1);
    run.shutdown.finish().await;
}

#[tokio::test]
async fn another_server_answers_for_one_that_does_not() {
    let silent = upstream(|_| async move { vec![] }).await;
    let refusing = upstream(|asked| async move { vec![answer(&asked, 5, [0, 0, 0], &[])] }).await;
    let broken = upstream(|asked| async move { vec![answer(&asked, 0, [5, 0, 0], b"xx")] }).await;
    let good = upstream(|asked| async move { vec![a(&asked, &[[10, 1, 1, 1]], 60)] }).await;
    let run = forwarding(&[&refusing, &broken, &good]).await;
    for n in 0..10 {
        assert_eq!(words(&run, &format!("n{n}.example")).await.answers.len(), 1);
    }
    run.shutdown.finish().await;
    let run = forwarding(&[&silent, &good]).await;
    assert_eq!(words(&run, "www.example.com").await.answers.len(), 1);
    run.shutdown.finish().await;
    let run = forwarding(&[&refusing]).await;
    assert_eq!(words(&run, "www.example.com").await.rcode, "REFUSED");
    run.shutdown.finish().await;
}

#[tokio::test]
async fn a_question_is_forwarded_once_at_a_time() {
    let (open, gate) = tokio::sync::watch::channel(false);
    let (came, mut coming) = tokio::sync::mpsc::unbounded_channel();
    let server = upstream(move |asked| {
        let (mut gate, came) = (gate.clone(), came.clone());
        async move {
            if kind_of(&asked) == 1 {
                came.send(()).unwrap();
            }
            gate.wait_for(|open| *open).await.unwrap();
            vec![a(&asked, &[[10, 1, 1, 1]], 60)]
        }
    })
    .await;
    let run = forwarding(&[&server]).await;
    let many = futures::future::join_all((0..50).map(|_| words(&run, "www.example.com")));
    let opens = async {
        coming.recv().await.expect("the question is forwarded");
        open.send_replace(true);
    };
    let (answers, ()) = tokio::join!(many, opens);
    assert!(answers.iter().all(|w| w.answers.len() == 1));
    assert_eq!(server.asked.load(Ordering::Relaxed), 1);
    run.shutdown.finish().await;
}

#[tokio::test]
async fn external_names_are_followed() {
    let server = upstream(|asked| async move {
        match &asked[13..16] {
            b"www" => vec![a(&asked, &[[192, 0, 2, 53]], 20)],
            _ => vec![answer(&asked, 3, [0, 1, 0], &soa(9))],
        }
    })
    .await;
    let run = forwarding(&[&server]).await;
    namespace(run.zone(), "default");
    service(run.zone(), "foo.default", &json!({"type": "ExternalName", "externalName": "www.example.com"}));
    service(run.zone(), "bar.default", &json!({"type": "ExternalName", "externalName": "gone.example.com"}));
    run.zone().set_synced();
    for _ in 0..2 {
        let got = ask(&run, "foo.default.svc.cluster.local A").await;
        assert_eq!((got.rcode.as_str(), got.answers.len()), ("NOERROR", 2), "{got:?}");
        assert_eq!(got.answers[0], "foo.default.svc.cluster.local. 5 IN CNAME www.example.com.");
        assert!(
            got.answers[1].starts_with("www.example.com. ") && got.answers[1].ends_with(" IN A 192.0.2.53"),
            "{got:?}"
        );
    }
    assert_eq!(server.asked.load(Ordering::Relaxed), 1);
    let got = ask(&run, "bar.default.svc.cluster.local A").await;
    assert_eq!((got.rcode.as_str(), got.answers.len(), got.authority.len()), ("NXDOMAIN", 1, 1));
    run.shutdown.finish().await;
}

#[tokio::test]
async fn stub_domains_have_servers_of_their_own() {
    let one = upstream(|asked| async move { vec![a(&asked, &[[10, 0, 0, 1]], 60)] }).await;
    let two = upstream(|asked| async move { vec![a(&asked, &[[10, 0, 0, 2]], 60)] }).await;
    let stub = |domain: &str, server: &Upstream| StubDomain {
        domain: domain.parse().unwrap(),
        servers: vec![server.address],
    };
    let stub_domains = vec![stub("corp.example", &one), stub("deep.corp.example", &two)];
    let run = start(Config { stub_domains, ..config() }).await;
    let check = async |name: &str, want: &[&str]| {
        let got = words(&run, name).await.answers;
        let got: Vec<&str> = got.iter().filter_map(|line| line.rsplit(' ').next()).collect();
        assert_eq!(got, want, "{name}");
    };
    check("a.corp.example", &["10.0.0.1"]).await;
    check("corp.EXAMPLE", &["10.0.0.1"]).await;
    check("a.deep.corp.example", &["10.0.0.2"]).await;
    check("notcorp.example", &[]).await;
    assert_eq!(words(&run, "notcorp.example").await.rcode, "REFUSED");
    run.shutdown.finish().await;
}

#[tokio::test]
async fn a_server_that_asks_us_is_not_asked_again() {
    // It passes every question on to the address that is put here.
    let (tell, target) = tokio::sync::watch::channel(None::<SocketAddr>);
    let server = upstream(move |asked| {
        let mut target = target.clone();
        async move {
            let us = target.wait_for(Option::is_some).await.unwrap().unwrap();
            vec![udp(us, &asked).await]
        }
    })
    .await;
    let run = forwarding(&[&server]).await;
    tell.send_replace(Some(run.address()));
    // Without the mark, each question would go round until its time is over.
    let quick = async || {
        let before = server.asked.load(Ordering::Relaxed);
        let got = words(&run, &format!("n{before}-{}.example", fastrand::u64(..))).await;
        got.rcode == "SERVFAIL" && server.asked.load(Ordering::Relaxed) == before
    };
    let mut looped = false;
    for _ in 0..20 {
        looped = looped || quick().await;
    }
    assert!(looped, "its questions came back, and it was asked again");
    run.shutdown.finish().await;
}

#[tokio::test]
async fn a_resolv_conf_without_servers_gets_servfail() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("resolv.conf");
    fs::write(&path, "nameserver 127.0.0.53\n").unwrap();
    let conf = ResolvConf { path, behind: vec![dir.path().join("none")] };
    let run = start(Config { upstreams: Upstreams::ResolvConf(conf), ..config() }).await;
    assert_eq!(words(&run, "www.example.com").await.rcode, "SERVFAIL");
    run.shutdown.finish().await;
}
