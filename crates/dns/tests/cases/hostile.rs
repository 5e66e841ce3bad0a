//! Clients that mean harm, and whether others are served.

use serde_json::json;

use super::*;

async fn serving() -> Run {
    let run = start(config()).await;
    namespace(run.zone(), "ns");
    service(run.zone(), "s.ns", &json!({"clusterIP": "10.0.0.1"}));
    run.zone().set_synced();
    run
}

async fn is_served(run: &Run) {
    assert_eq!(ask(run, "s.ns.svc.cluster.local A").await.answers.len(), 1);
}

#[tokio::test]
async fn malformed_packets_are_refused() {
    let run = serving().await;
    let good = question(0x1234, "s.ns.svc.cluster.local", 1, Some(1232));
    let edit = |at: usize, value: u8| {
        let mut packet = good.clone();
        packet[at] = value;
        packet
    };
    let check = async |packet: Vec<u8>, want: &str| {
        let answer = udp(run.address(), &packet).await;
        assert_eq!(
            (&answer[..2], Words::from(&answer[..]).rcode.as_str()),
            (&packet[..2], want),
            "{packet:?}"
        );
        assert_eq!(udp(run.address(), &packet).await.len(), tcp(run.address(), &packet).await.len());
    };
    check(good[..20].to_vec(), "FORMERR").await;
    check(edit(5, 0), "FORMERR").await;
    check(edit(5, 2), "FORMERR").await;
    check(edit(11, 9), "FORMERR").await;
    check(edit(12, 0xc0), "FORMERR").await;
    check(edit(12, 64), "FORMERR").await;
    check(edit(2, 0x29), "NOTIMP").await;
    let class = good.len() - 12;
    check(edit(class, 3), "REFUSED").await;
    let version = good.len() - 5;
    check(edit(version, 1), "BADVERS").await;
    // These get no answer at all, so the next packet's comes.
    let socket = UdpSocket::bind(loopback()).await.unwrap();
    socket.connect(run.address()).await.unwrap();
    for silent in [Vec::new(), good[..11].to_vec(), edit(2, 0x81), vec![0xff; 3000], good.clone()] {
        socket.send(&silent).await.unwrap();
    }
    let mut answer = [0; 2000];
    let length = tokio::time::timeout(PATIENCE, socket.recv(&mut answer)).await.unwrap().unwrap();
    assert_eq!(Words::from(&answer[..length]).answers.len(), 1);
    is_served(&run).await;
    run.shutdown.finish().await;
}

#[tokio::test]
async fn many_questions_on_a_connection() {
    let run = serving().await;
    let mut stream = TcpStream::connect(run.address()).await.unwrap();
    let all: Vec<u8> = (0..500u16)
        .flat_map(|id| {
            let packet = question(id, "s.ns.svc.cluster.local", 1, None);
            [&(packet.len() as u16).to_be_bytes()[..], &packet].concat()
        })
        .collect();
    let (mut reader, mut writer) = stream.split();
    let send = async {
        for piece in all.chunks(777) {
            writer.write_all(piece).await.unwrap();
        }
    };
    let receive = async {
        for id in 0..500u16 {
            let mut answer = vec![0; usize::from(reader.read_u16().await.unwrap())];
            reader.read_exact(&mut answer).await.unwrap();
            assert_eq!(answer[..2], id.to_be_bytes());
        }
    };
    tokio::join!(send, receive);
    run.shutdown.finish().await;
}

#[tokio::test]
async fn connections_of_one_client_are_bounded() {
    let run = serving().await;
    let mut held = Vec::new();
    for _ in 0..300 {
        held.push(TcpStream::connect(run.address()).await.unwrap());
    }
    // Those too many are closed, and datagrams go on.
    let mut closed = 0;
    for stream in held.iter_mut().skip(128) {
        let mut byte = [0];
        closed += usize::from(matches!(stream.read(&mut byte).await, Ok(0) | Err(_)));
    }
    assert_eq!(closed, 172);
    let packet = question(1, "s.ns.svc.cluster.local", 1, None);
    assert_eq!(message(&udp(run.address(), &packet).await).answers.len(), 1);
    drop(held);
    run.shutdown.finish().await;
}

#[tokio::test]
async fn a_flood_of_names_leaves_the_cluster_alone() {
    // Nobody answers there.
    let silent = UdpSocket::bind(loopback()).await.unwrap();
    let upstreams = Upstreams::Servers(vec![silent.local_addr().unwrap()]);
    let run = start(Config { upstreams, max_concurrent: 40, ..config() }).await;
    namespace(run.zone(), "ns");
    service(run.zone(), "s.ns", &json!({"clusterIP": "10.0.0.1"}));
    let flood = UdpSocket::bind(loopback()).await.unwrap();
    flood.connect(run.address()).await.unwrap();
    for n in 0..200u16 {
        flood.send(&question(n, &format!("n{n}.example"), 1, None)).await.unwrap();
    }
    // A client has a quarter of the places; all others are refused at once.
    let mut refused = 0;
    while refused < 100 {
        let mut answer = [0; 512];
        let length =
            tokio::time::timeout(PATIENCE, flood.recv(&mut answer)).await.expect("a refusal").unwrap();
        refused += usize::from(Words::from(&answer[..length]).rcode == "REFUSED");
    }
    is_served(&run).await;
    assert!(run.metrics().contains("coredns_forward_max_concurrent_rejects_total 1"), "{}", run.metrics());
    run.shutdown.finish().await;
}

#[tokio::test]
async fn pages_tell_what_is() {
    let pages = Some(loopback());
    let run = start(Config { health: pages, ready: pages, metrics: pages, ..config() }).await;
    let get = async |at: usize, path: &str| {
        let mut stream = TcpStream::connect(run.server.pages()[at]).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    };
    assert!(get(0, "/health").await.starts_with("HTTP/1.1 200 "));
    assert!(get(1, "/ready").await.starts_with("HTTP/1.1 503 "));
    run.zone().set_synced();
    assert!(get(1, "/ready").await.starts_with("HTTP/1.1 200 "));
    ask(&run, "cluster.local SOA").await;
    let metrics = get(2, "/metrics").await;
    for line in [
        r#"zone="cluster.local.",view="",proto="udp",family="1",type="SOA"} 1"#,
        r#"zone="cluster.local.",view="",proto="tcp",family="1",type="SOA"} 1"#,
        r#"zone="cluster.local.",view="",rcode="NOERROR",plugin=""} 2"#,
        "coredns_dns_request_duration_seconds_bucket{",
        "coredns_kubernetes_dns_programming_duration_seconds_count{service_kind=\"headless_with_selector\"} 0",
        "coredns_build_info{",
        "coredns_cache_entries{",
        "coredns_forward_healthcheck_broken_total 0",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    run.shutdown.finish().await;
}
