//! Every row of Kubernetes' DNS-based service discovery 1.1.

use serde_json::json;

use super::*;

/// A cluster of the specification's examples.
async fn cluster() -> Run {
    let config = Config {
        reverse: vec!["10.3.0.0/24".parse().unwrap(), "2001:db8::/64".parse().unwrap()],
        ..config()
    };
    let run = start(config).await;
    let zone = run.zone();
    namespace(zone, "default");
    let https = json!([{"name": "https", "port": 443, "protocol": "TCP"}, {"port": 80}]);
    service(zone, "kubernetes.default", &json!({"clusterIP": "10.3.0.1", "ports": https}));
    service(zone, "kubernetes6.default", &json!({"clusterIP": "2001:db8::1", "ports": https}));
    let both = json!({"clusterIP": "10.3.0.7", "clusterIPs": ["10.3.0.7", "2001:db8::7"], "ports": https});
    service(zone, "dual.default", &both);
    service(zone, "headless.default", &json!({"clusterIP": "None", "ports": https}));
    slice(
        zone,
        "headless.default",
        1,
        &https,
        &endpoints(&["10.3.0.100=my-pet", "10.3.0.101=my-pet-2", "10.3.0.102"]),
    );
    slice(zone, "headless.default", 2, &https, &endpoints(&["2001:db8::64=my-pet"]));
    service(zone, "none-ready.default", &json!({"clusterIP": "None", "ports": https}));
    let unready = json!([{"addresses": ["10.3.0.110"], "conditions": {"ready": false}}]);
    slice(zone, "none-ready.default", 1, &https, &unready);
    service(zone, "foo.default", &json!({"type": "ExternalName", "externalName": "www.example.com"}));
    zone.set_synced();
    run
}

#[tokio::test]
#[allow(clippy::too_many_lines, reason = "a table")]
async fn every_row() {
    let run = cluster().await;
    let nibbles =
        |last: &str| format!("{last}.{}8.b.d.0.1.0.0.2.ip6.arpa", "0.".repeat(24 - last.split('.').count()));
    let (own6, pet6) = (nibbles("1"), nibbles("4.6"));
    let rows: &[(&str, &str, &[&str], &[&str])] = &[
        // 2.2
        ("dns-version.cluster.local TXT", "NOERROR", &["dns-version.cluster.local. 28800 IN TXT 1.1.0"], &[]),
        // 2.3.1
        (
            "kubernetes.default.svc.cluster.local A",
            "NOERROR",
            &["kubernetes.default.svc.cluster.local. 5 IN A 10.3.0.1"],
            &[],
        ),
        (
            "kubernetes6.default.svc.cluster.local AAAA",
            "NOERROR",
            &["kubernetes6.default.svc.cluster.local. 5 IN AAAA 2001:db8::1"],
            &[],
        ),
        ("kubernetes.default.svc.cluster.local AAAA", "NOERROR", &[], &[]),
        (
            "dual.default.svc.cluster.local A",
            "NOERROR",
            &["dual.default.svc.cluster.local. 5 IN A 10.3.0.7"],
            &[],
        ),
        (
            "dual.default.svc.cluster.local AAAA",
            "NOERROR",
            &["dual.default.svc.cluster.local. 5 IN AAAA 2001:db8::7"],
            &[],
        ),
        // 2.3.2
        (
            "_https._tcp.kubernetes.default.svc.cluster.local SRV",
            "NOERROR",
            &[
                "_https._tcp.kubernetes.default.svc.cluster.local. 5 IN SRV 0 100 443 kubernetes.default.svc.cluster.local.",
            ],
            &["kubernetes.default.svc.cluster.local. 5 IN A 10.3.0.1"],
        ),
        ("_http._tcp.kubernetes.default.svc.cluster.local SRV", "NXDOMAIN", &[], &[]),
        ("_https._udp.kubernetes.default.svc.cluster.local SRV", "NXDOMAIN", &[], &[]),
        // 2.3.3
        (
            "1.0.3.10.in-addr.arpa PTR",
            "NOERROR",
            &["1.0.3.10.in-addr.arpa. 5 IN PTR kubernetes.default.svc.cluster.local."],
            &[],
        ),
        (
            &format!("{own6} PTR"),
            "NOERROR",
            &[&format!("{own6}. 5 IN PTR kubernetes6.default.svc.cluster.local.")],
            &[],
        ),
        // 2.4.1
        (
            "headless.default.svc.cluster.local A",
            "NOERROR",
            &[
                "headless.default.svc.cluster.local. 5 IN A 10.3.0.100",
                "headless.default.svc.cluster.local. 5 IN A 10.3.0.101",
                "headless.default.svc.cluster.local. 5 IN A 10.3.0.102",
            ],
            &[],
        ),
        (
            "headless.default.svc.cluster.local AAAA",
            "NOERROR",
            &["headless.default.svc.cluster.local. 5 IN AAAA 2001:db8::64"],
            &[],
        ),
        ("none-ready.default.svc.cluster.local A", "NXDOMAIN", &[], &[]),
        ("none-ready.default.svc.cluster.local AAAA", "NXDOMAIN", &[], &[]),
        (
            "my-pet.headless.default.svc.cluster.local A",
            "NOERROR",
            &["my-pet.headless.default.svc.cluster.local. 5 IN A 10.3.0.100"],
            &[],
        ),
        (
            "my-pet.headless.default.svc.cluster.local AAAA",
            "NOERROR",
            &["my-pet.headless.default.svc.cluster.local. 5 IN AAAA 2001:db8::64"],
            &[],
        ),
        (
            "10-3-0-102.headless.default.svc.cluster.local A",
            "NOERROR",
            &["10-3-0-102.headless.default.svc.cluster.local. 5 IN A 10.3.0.102"],
            &[],
        ),
        ("10-3-0-100.headless.default.svc.cluster.local A", "NXDOMAIN", &[], &[]),
        // 2.4.2
        (
            "_https._tcp.headless.default.svc.cluster.local SRV",
            "NOERROR",
            &[
                "_https._tcp.headless.default.svc.cluster.local. 5 IN SRV 0 25 443 my-pet.headless.default.svc.cluster.local.",
                "_https._tcp.headless.default.svc.cluster.local. 5 IN SRV 0 25 443 my-pet-2.headless.default.svc.cluster.local.",
                "_https._tcp.headless.default.svc.cluster.local. 5 IN SRV 0 25 443 10-3-0-102.headless.default.svc.cluster.local.",
            ],
            &[
                "my-pet.headless.default.svc.cluster.local. 5 IN A 10.3.0.100",
                "my-pet.headless.default.svc.cluster.local. 5 IN AAAA 2001:db8::64",
                "my-pet-2.headless.default.svc.cluster.local. 5 IN A 10.3.0.101",
                "10-3-0-102.headless.default.svc.cluster.local. 5 IN A 10.3.0.102",
            ],
        ),
        ("_http._tcp.headless.default.svc.cluster.local SRV", "NXDOMAIN", &[], &[]),
        // 2.4.3
        (
            "100.0.3.10.in-addr.arpa PTR",
            "NOERROR",
            &["100.0.3.10.in-addr.arpa. 5 IN PTR my-pet.headless.default.svc.cluster.local."],
            &[],
        ),
        (
            "102.0.3.10.in-addr.arpa PTR",
            "NOERROR",
            &["102.0.3.10.in-addr.arpa. 5 IN PTR 10-3-0-102.headless.default.svc.cluster.local."],
            &[],
        ),
        (
            &format!("{pet6} PTR"),
            "NOERROR",
            &[&format!("{pet6}. 5 IN PTR my-pet.headless.default.svc.cluster.local.")],
            &[],
        ),
        ("110.0.3.10.in-addr.arpa PTR", "NXDOMAIN", &[], &[]),
        // 2.5
        (
            "foo.default.svc.cluster.local CNAME",
            "NOERROR",
            &["foo.default.svc.cluster.local. 5 IN CNAME www.example.com."],
            &[],
        ),
    ];
    check(&run, rows).await;
    run.shutdown.finish().await;
}

#[tokio::test]
async fn names_are_the_same_in_any_case() {
    let run = cluster().await;
    for (asked, want) in [
        ("KuBeRnEtEs.DeFaUlT.SvC.cLuStEr.LoCaL A", "KuBeRnEtEs.DeFaUlT.SvC.cLuStEr.LoCaL. 5 IN A 10.3.0.1"),
        (
            "_HtTpS._TcP.kUbernetes.Default.sVc.cLuStEr.LoCaL SRV",
            "_HtTpS._TcP.kUbernetes.Default.sVc.cLuStEr.LoCaL. 5 IN SRV 0 100 443 kubernetes.default.svc.cLuStEr.LoCaL.",
        ),
        (
            "MY-PET.headless.default.svc.cluster.local A",
            "MY-PET.headless.default.svc.cluster.local. 5 IN A 10.3.0.100",
        ),
        (
            "1.0.3.10.IN-ADDR.arpa PTR",
            "1.0.3.10.IN-ADDR.arpa. 5 IN PTR kubernetes.default.svc.cluster.local.",
        ),
    ] {
        assert_eq!(ask(&run, asked).await.answers, [want]);
    }
    let denied = ask(&run, "none.default.svc.ClUsTeR.lOcAl A").await;
    let want = "ClUsTeR.lOcAl. 5 IN SOA ns.dns.ClUsTeR.lOcAl. hostmaster.ClUsTeR.lOcAl. 1499347823 7200 1800 86400 5";
    assert_eq!(denied.authority, [want]);
    run.shutdown.finish().await;
}
