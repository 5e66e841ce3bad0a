//! The cases of CoreDNS' tests of its kubernetes plugin.

use serde_json::json;

use super::*;
use dns::PodMode;

/// The cluster of those tests.
async fn cluster(pods: PodMode) -> Run {
    let nameservers = vec!["10.0.0.10".parse().unwrap()];
    let reverse = ["10.0.0.0/16", "192.168.0.0/16", "1234:abcd::/64", "fd00:77:30::/64"];
    let reverse = reverse.map(|c| c.parse().unwrap()).into();
    let run = start(Config { pods, nameservers, reverse, ..config() }).await;
    let zone = run.zone();
    for name in ["testns", "podns", "svcns", "kube-system"] {
        namespace(zone, name);
    }
    let http = json!([{"name": "http", "port": 80, "protocol": "TCP"}]);
    let cluster = |ips: &[&str]| json!({"clusterIP": ips[0], "clusterIPs": ips, "ports": http});
    service(zone, "svc1.testns", &cluster(&["10.0.0.1"]));
    service(zone, "svcempty.testns", &cluster(&["10.0.0.2"]));
    service(zone, "svc6.testns", &cluster(&["1234:abcd::1"]));
    service(zone, "svc-dual-stack.testns", &cluster(&["10.0.0.3", "10::3"]));
    service(zone, "hdls1.testns", &json!({"clusterIP": "None"}));
    service(zone, "hdlsprtls.testns", &json!({"clusterIP": "None"}));
    service(zone, "rev1.testns", &cluster(&["192.168.1.100"]));
    service(zone, "rev2.testns", &cluster(&["192.168.1.101"]));
    service(
        zone,
        "external.testns",
        &json!({"type": "ExternalName", "externalName": "ext.interwebs.test", "ports": http}),
    );
    let inside =
        json!({"type": "ExternalName", "externalName": "svc1.testns.svc.cluster.local.", "ports": http});
    service(zone, "external-to-service.testns", &inside);
    let round = json!({"type": "ExternalName", "externalName": "round.testns.svc.cluster.local."});
    service(zone, "round.testns", &round);
    slice(zone, "svc1.testns", 1, &http, &endpoints(&["172.0.0.1=ep1a"]));
    let four = ["172.0.0.2", "172.0.0.3", "172.0.0.4=dup-name", "172.0.0.5=dup-name"];
    slice(zone, "hdls1.testns", 1, &http, &endpoints(&four));
    slice(zone, "hdls1.testns", 2, &http, &endpoints(&["5678:abcd::1", "5678:abcd::2"]));
    slice(zone, "hdlsprtls.testns", 1, &json!([]), &endpoints(&["172.0.0.20"]));
    slice(zone, "rev1.testns", 1, &http, &endpoints(&["10.0.0.100=ep1a", "10.0.0.99=double-ep"]));
    slice(
        zone,
        "rev1.testns",
        2,
        &http,
        &endpoints(&["1234:abcd::9=ep1b", "fd00:77:30::a=ip6svc1ex", "fd00:77:30::2:9ba6=ip6svc1in"]),
    );
    slice(zone, "rev1.testns", 3, &http, &endpoints(&["10.0.0.100=ep1a"]));
    slice(zone, "rev2.testns", 1, &http, &endpoints(&["10.0.0.99=double-ep"]));
    pod(zone, "podns", "10.240.0.1");
    zone.set_synced();
    run
}

#[tokio::test]
async fn services() {
    let run = cluster(PodMode::Disabled).await;
    let rows: &[(&str, &str, &[&str], &[&str])] = &[
        (
            "svc1.testns.svc.cluster.local A",
            "NOERROR",
            &["svc1.testns.svc.cluster.local. 5 IN A 10.0.0.1"],
            &[],
        ),
        (
            "svcempty.testns.svc.cluster.local A",
            "NOERROR",
            &["svcempty.testns.svc.cluster.local. 5 IN A 10.0.0.2"],
            &[],
        ),
        (
            "svc1.testns.svc.cluster.local SRV",
            "NOERROR",
            &["svc1.testns.svc.cluster.local. 5 IN SRV 0 100 80 svc1.testns.svc.cluster.local."],
            &["svc1.testns.svc.cluster.local. 5 IN A 10.0.0.1"],
        ),
        (
            "_http._tcp.svc6.testns.svc.cluster.local SRV",
            "NOERROR",
            &["_http._tcp.svc6.testns.svc.cluster.local. 5 IN SRV 0 100 80 svc6.testns.svc.cluster.local."],
            &["svc6.testns.svc.cluster.local. 5 IN AAAA 1234:abcd::1"],
        ),
        ("svc1.testns.svc.cluster.local AAAA", "NOERROR", &[], &[]),
        ("svc0.testns.svc.cluster.local AAAA", "NXDOMAIN", &[], &[]),
        ("svc0.testns.svc.cluster.local A", "NXDOMAIN", &[], &[]),
        ("svc0.svc-nons.svc.cluster.local A", "NXDOMAIN", &[], &[]),
        ("svc1.testns.svc.cluster.local TXT", "NOERROR", &[], &[]),
        ("svc0.svc-nons.svc.cluster.local TXT", "NXDOMAIN", &[], &[]),
        ("bogusendpoint.hdls1.testns.svc.cluster.local A", "NXDOMAIN", &[], &[]),
        ("bogusendpoint.svc0.testns.svc.cluster.local A", "NXDOMAIN", &[], &[]),
        (
            "ep1a.svc1.testns.svc.cluster.local A",
            "NOERROR",
            &["ep1a.svc1.testns.svc.cluster.local. 5 IN A 172.0.0.1"],
            &[],
        ),
        ("svc.cluster.local A", "NOERROR", &[], &[]),
        ("pod.cluster.local A", "NOERROR", &[], &[]),
        ("testns.svc.cluster.local A", "NOERROR", &[], &[]),
        ("svc.cluster.local NS", "NOERROR", &[], &[]),
        ("testns.svc.cluster.local NS", "NOERROR", &[], &[]),
        ("foo.cluster.local NS", "NXDOMAIN", &[], &[]),
        ("foo.svc.cluster.local NS", "NXDOMAIN", &[], &[]),
        (
            "svc-dual-stack.testns.svc.cluster.local SRV",
            "NOERROR",
            &[
                "svc-dual-stack.testns.svc.cluster.local. 5 IN SRV 0 50 80 svc-dual-stack.testns.svc.cluster.local.",
            ],
            &[
                "svc-dual-stack.testns.svc.cluster.local. 5 IN A 10.0.0.3",
                "svc-dual-stack.testns.svc.cluster.local. 5 IN AAAA 10::3",
            ],
        ),
        ("svc1.testns.svc.cluster.local SOA", "NOERROR", &[], &[]),
        ("svc1.testns.svc.cluster.local ANY", "NOERROR", &[], &[]),
        ("endpoint.external.testns.svc.cluster.local CNAME", "NXDOMAIN", &[], &[]),
        ("subdomain.subdomain.external.testns.svc.cluster.local CNAME", "NXDOMAIN", &[], &[]),
        ("a.b.c.svc1.testns.svc.cluster.local A", "NXDOMAIN", &[], &[]),
        ("*.testns.svc.cluster.local A", "NXDOMAIN", &[], &[]),
        ("svc1.*.svc.cluster.local A", "NXDOMAIN", &[], &[]),
        (
            "external.testns.svc.cluster.local CNAME",
            "NOERROR",
            &["external.testns.svc.cluster.local. 5 IN CNAME ext.interwebs.test."],
            &[],
        ),
        (
            "external-to-service.testns.svc.cluster.local A",
            "NOERROR",
            &[
                "external-to-service.testns.svc.cluster.local. 5 IN CNAME svc1.testns.svc.cluster.local.",
                "svc1.testns.svc.cluster.local. 5 IN A 10.0.0.1",
            ],
            &[],
        ),
        // DIFFERENCE: CoreDNS says NXDOMAIN to these, below which there are names.
        ("dns.cluster.local A", "NOERROR", &[], &[]),
        ("_tcp.svc1.testns.svc.cluster.local SRV", "NOERROR", &[], &[]),
        ("_tcp.hdls1.testns.svc.cluster.local SRV", "NOERROR", &[], &[]),
        ("_udp.svc1.testns.svc.cluster.local SRV", "NXDOMAIN", &[], &[]),
    ];
    check(&run, rows).await;
    assert_eq!(ask(&run, "round.testns.svc.cluster.local A").await.rcode, "SERVFAIL");
    run.shutdown.finish().await;
}

#[tokio::test]
async fn headless() {
    let run = cluster(PodMode::Disabled).await;
    let at = |host: &str| format!("{host}.hdls1.testns.svc.cluster.local.");
    let srv =
        |host: &str| format!("_http._tcp.hdls1.testns.svc.cluster.local. 5 IN SRV 0 16 80 {}", at(host));
    let hosts = ["172-0-0-2", "172-0-0-3", "5678-abcd--1", "5678-abcd--2", "dup-name"].map(srv);
    let extra = [
        ("172-0-0-2", "A 172.0.0.2"),
        ("172-0-0-3", "A 172.0.0.3"),
        ("5678-abcd--1", "AAAA 5678:abcd::1"),
        ("5678-abcd--2", "AAAA 5678:abcd::2"),
        ("dup-name", "A 172.0.0.4"),
        ("dup-name", "A 172.0.0.5"),
    ];
    let extra = extra.map(|(host, data)| format!("{} 5 IN {data}", at(host)));
    let addresses = [2, 3, 4, 5].map(|n| format!("hdls1.testns.svc.cluster.local. 5 IN A 172.0.0.{n}"));
    let rows: &[(&str, &str, &[&str], &[&str])] = &[
        ("hdls1.testns.svc.cluster.local A", "NOERROR", &addresses.each_ref().map(String::as_str), &[]),
        (
            "hdls1.testns.svc.cluster.local AAAA",
            "NOERROR",
            &[
                "hdls1.testns.svc.cluster.local. 5 IN AAAA 5678:abcd::1",
                "hdls1.testns.svc.cluster.local. 5 IN AAAA 5678:abcd::2",
            ],
            &[],
        ),
        (
            "hdlsprtls.testns.svc.cluster.local A",
            "NOERROR",
            &["hdlsprtls.testns.svc.cluster.local. 5 IN A 172.0.0.20"],
            &[],
        ),
        ("hdlsprtls.testns.svc.cluster.local SRV", "NOERROR", &[], &[]),
        (
            "_http._tcp.hdls1.testns.svc.cluster.local SRV",
            "NOERROR",
            &hosts.each_ref().map(String::as_str),
            &extra.each_ref().map(String::as_str),
        ),
        (
            "5678-abcd--2.hdls1.testns.svc.cluster.local AAAA",
            "NOERROR",
            &[&format!("{} 5 IN AAAA 5678:abcd::2", at("5678-abcd--2"))],
            &[],
        ),
        (
            "172-0-0-20.hdlsprtls.testns.svc.cluster.local A",
            "NOERROR",
            &["172-0-0-20.hdlsprtls.testns.svc.cluster.local. 5 IN A 172.0.0.20"],
            &[],
        ),
        (
            "172-0-0-2.hdls1.testns.svc.cluster.local A",
            "NOERROR",
            &[&format!("{} 5 IN A 172.0.0.2", at("172-0-0-2"))],
            &[],
        ),
        (
            "dup-name.hdls1.testns.svc.cluster.local A",
            "NOERROR",
            &[
                &format!("{} 5 IN A 172.0.0.4", at("dup-name")),
                &format!("{} 5 IN A 172.0.0.5", at("dup-name")),
            ],
            &[],
        ),
    ];
    check(&run, rows).await;
    run.shutdown.finish().await;
}

#[tokio::test]
async fn the_zone_itself() {
    let run = cluster(PodMode::Disabled).await;
    let soa = "cluster.local. 5 IN SOA ns.dns.cluster.local. hostmaster.cluster.local. 1499347823 7200 1800 86400 5";
    let rows: &[(&str, &str, &[&str], &[&str])] = &[
        ("cluster.local SOA", "NOERROR", &[soa], &[]),
        ("cluster.local HINFO", "NOERROR", &[], &[]),
        ("cluster.local A", "NOERROR", &[], &[]),
        ("cluster.local AAAA", "NOERROR", &[], &[]),
        ("cluster.local SRV", "NOERROR", &[], &[]),
        (
            "cluster.local NS",
            "NOERROR",
            &["cluster.local. 5 IN NS ns.dns.cluster.local."],
            &["ns.dns.cluster.local. 5 IN A 10.0.0.10"],
        ),
        ("ns.dns.cluster.local A", "NOERROR", &["ns.dns.cluster.local. 5 IN A 10.0.0.10"], &[]),
        ("ns.dns.cluster.local AAAA", "NOERROR", &[], &[]),
    ];
    check(&run, rows).await;
    service(run.zone(), "kube-dns.kube-system", &json!({"clusterIP": "10.0.0.10"}));
    let rows: &[(&str, &str, &[&str], &[&str])] = &[(
        "cluster.local NS",
        "NOERROR",
        &["cluster.local. 5 IN NS kube-dns.kube-system.svc.cluster.local."],
        &["kube-dns.kube-system.svc.cluster.local. 5 IN A 10.0.0.10"],
    )];
    check(&run, rows).await;
    for kind in ["AXFR", "IXFR"] {
        assert_eq!(ask(&run, &format!("cluster.local {kind}")).await.rcode, "REFUSED");
    }
    run.shutdown.finish().await;
}

#[tokio::test]
async fn reverse() {
    let run = cluster(PodMode::Disabled).await;
    let ex = "a.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.3.0.0.7.7.0.0.0.0.d.f.ip6.arpa";
    let inside = "6.a.b.9.2.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.3.0.0.7.7.0.0.0.0.d.f.ip6.arpa";
    let rows: &[(&str, &str, &[&str], &[&str])] = &[
        (
            "100.0.0.10.in-addr.arpa PTR",
            "NOERROR",
            &["100.0.0.10.in-addr.arpa. 5 IN PTR ep1a.rev1.testns.svc.cluster.local."],
            &[],
        ),
        (
            "100.1.168.192.in-addr.arpa PTR",
            "NOERROR",
            &["100.1.168.192.in-addr.arpa. 5 IN PTR rev1.testns.svc.cluster.local."],
            &[],
        ),
        (
            &format!("{ex} PTR"),
            "NOERROR",
            &[&format!("{ex}. 5 IN PTR ip6svc1ex.rev1.testns.svc.cluster.local.")],
            &[],
        ),
        (
            &format!("{inside} PTR"),
            "NOERROR",
            &[&format!("{inside}. 5 IN PTR ip6svc1in.rev1.testns.svc.cluster.local.")],
            &[],
        ),
        ("101.0.0.10.in-addr.arpa PTR", "NXDOMAIN", &[], &[]),
        ("example.org.cluster.local PTR", "NXDOMAIN", &[], &[]),
        ("svc1.testns.svc.cluster.local PTR", "NOERROR", &[], &[]),
        ("100.0.0.10.cluster.local PTR", "NXDOMAIN", &[], &[]),
        (
            "99.0.0.10.in-addr.arpa PTR",
            "NOERROR",
            &[
                "99.0.0.10.in-addr.arpa. 5 IN PTR double-ep.rev1.testns.svc.cluster.local.",
                "99.0.0.10.in-addr.arpa. 5 IN PTR double-ep.rev2.testns.svc.cluster.local.",
            ],
            &[],
        ),
        ("99.0.0.10.in-addr.arpa A", "NOERROR", &[], &[]),
        ("0.0.10.in-addr.arpa PTR", "NOERROR", &[], &[]),
        ("7.0.10.in-addr.arpa PTR", "NXDOMAIN", &[], &[]),
        ("0.10.in-addr.arpa A", "NOERROR", &[], &[]),
    ];
    check(&run, rows).await;
    let denied = ask(&run, "101.0.0.10.in-addr.arpa PTR").await;
    let soa = "0.10.in-addr.arpa. 5 IN SOA ns.dns.0.10.in-addr.arpa. hostmaster.0.10.in-addr.arpa. 1499347823 7200 1800 86400 5";
    assert_eq!(denied.authority, [soa]);
    assert_eq!(ask(&run, "0.10.in-addr.arpa SOA").await.answers, [soa]);
    // An endpoint outside the cluster's blocks has its name, and others have none here.
    let known = ask(&run, "2.0.0.172.in-addr.arpa PTR").await.answers;
    assert_eq!(known, ["2.0.0.172.in-addr.arpa. 5 IN PTR 172-0-0-2.hdls1.testns.svc.cluster.local."]);
    assert_eq!(ask(&run, "1.1.1.1.in-addr.arpa PTR").await.rcode, "REFUSED");
    run.shutdown.finish().await;
}

#[tokio::test]
async fn names_of_pods() {
    let first = "10-240-0-1.podns.pod.cluster.local. 5 IN A 10.240.0.1";
    let second = "172-0-0-2.podns.pod.cluster.local. 5 IN A 172.0.0.2";
    for (mode, one, other) in [
        (PodMode::Disabled, "NXDOMAIN", "NXDOMAIN"),
        (PodMode::Insecure, "NOERROR", "NOERROR"),
        (PodMode::Verified, "NOERROR", "NXDOMAIN"),
    ] {
        let run = cluster(mode).await;
        let rows = |rcode: &str, row: &'static str| -> Vec<&'static str> {
            if rcode == "NOERROR" { vec![row] } else { vec![] }
        };
        let (ones, others) = (rows(one, first), rows(other, second));
        let rows: &[(&str, &str, &[&str], &[&str])] = &[
            ("10-240-0-1.podns.pod.cluster.local A", one, &ones, &[]),
            ("10-240-0-1.podns.pod.cluster.local AAAA", one, &[], &[]),
            ("172-0-0-2.podns.pod.cluster.local A", other, &others, &[]),
            ("blah.podns.pod.cluster.local A", "NXDOMAIN", &[], &[]),
            ("blah.podns.pod.cluster.local HINFO", "NXDOMAIN", &[], &[]),
            (
                "10-240-0-1.testns.pod.cluster.local A",
                if mode == PodMode::Insecure { "NOERROR" } else { "NXDOMAIN" },
                if mode == PodMode::Insecure {
                    &["10-240-0-1.testns.pod.cluster.local. 5 IN A 10.240.0.1"]
                } else {
                    &[]
                },
                &[],
            ),
            ("10-240-0-1.pod-nons.pod.cluster.local A", "NXDOMAIN", &[], &[]),
            ("x.10-240-0-1.podns.pod.cluster.local A", "NXDOMAIN", &[], &[]),
            ("podns.pod.cluster.local A", "NOERROR", &[], &[]),
            ("pod-nons.pod.cluster.local A", "NXDOMAIN", &[], &[]),
            ("svcns.svc.cluster.local A", "NOERROR", &[], &[]),
        ];
        check(&run, rows).await;
        run.shutdown.finish().await;
    }
}

#[tokio::test]
async fn a_zone_that_is_not_whole_denies_nothing() {
    let run = start(config()).await;
    namespace(run.zone(), "testns");
    service(run.zone(), "svc1.testns", &json!({"clusterIP": "10.0.0.1"}));
    assert_eq!(ask(&run, "svc1.testns.svc.cluster.local A").await.answers.len(), 1);
    assert_eq!(ask(&run, "svc0.testns.svc.cluster.local A").await.rcode, "SERVFAIL");
    run.zone().set_synced();
    assert_eq!(ask(&run, "svc0.testns.svc.cluster.local A").await.rcode, "NXDOMAIN");
    run.shutdown.finish().await;
}
