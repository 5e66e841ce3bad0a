//! Flags of the API server, by what they do.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rcgen::{CertificateParams, DnType, KeyPair};
use serde_json::json;
use testkit::{Reply, Server, Webhook, eventually};

use crate::api::{MAPS, aggregation, map, pod};
use crate::hostile::wire::{Http2, SETTINGS};

const PODS: &str = "/api/v1/namespaces/default/pods";

/// Without the plugin, a Pod needs no ServiceAccount, which would come later than its namespace.
const NO_ACCOUNTS: &str = "--disable-admission-plugins=ServiceAccount";

#[test]
fn the_way_to_speak_https() -> Result<()> {
    let s = Server::start(&[
        NO_ACCOUNTS,
        "--tls-min-version=VersionTLS13",
        "--disable-http2-serving",
        "--permit-port-sharing",
        "--permit-address-sharing",
        "--strict-transport-security-directives=max-age=31536000,includeSubDomains",
        r"--cors-allowed-origins=//example\.com$,^https://a\.b(:\d+)?$",
        "--external-hostname=api.example.com",
        "--default-not-ready-toleration-seconds=7",
        "--default-unreachable-toleration-seconds=8",
    ])?;
    let old = s.get("/version").flag("--tls-max").flag("1.2").send();
    ensure!(old.is_err(), "TLS 1.2 is spoken");
    let version = s.get("/version").flag("--http2").flag("--write-out").flag("%{http_version}").send()?;
    let version = version.expect(200)?;
    ensure!(version.text().ends_with("1.1"), "{}", version.text());
    ensure!(version.header("strict-transport-security") == "max-age=31536000; includeSubDomains");
    ensure!(version.header("access-control-allow-origin").is_empty());

    // A script's origin is let in by the expressions; a browser asks first, without credentials.
    let asked = |origin: &str, method: &str| {
        s.anonymous(method, "/api/v1/pods").header("Origin", origin).header("X-Requested-With", "x").send()
    };
    let refused = asked("https://example.org", "OPTIONS")?;
    ensure!(refused.status == 403 && refused.header("access-control-allow-origin").is_empty());
    let let_in = asked("https://a.b:8443", "OPTIONS")?.expect(204)?;
    let of = |name: &str| let_in.header(name).to_owned();
    ensure!(let_in.text().is_empty() && of("access-control-allow-origin") == "https://a.b:8443");
    ensure!(of("access-control-allow-methods") == "POST, GET, OPTIONS, PUT, DELETE, PATCH");
    ensure!(
        of("access-control-allow-credentials") == "true" && of("access-control-expose-headers") == "Date"
    );
    ensure!(of("access-control-allow-headers").starts_with("Content-Type, Content-Length, Accept-Encoding"));
    let read = s.get(MAPS).header("Origin", "http://example.com").send()?.expect(200)?;
    ensure!(read.header("access-control-allow-origin") == "http://example.com");

    let issuer = s.get("/.well-known/openid-configuration").send()?.expect(200)?.json()?;
    ensure!(issuer["jwks_uri"] == format!("https://api.example.com:{}/openid/v1/jwks", s.port()), "{issuer}");

    let versions = s.get("/api").send()?.expect(200)?.json()?;
    let told = &versions["serverAddressByClientCIDRs"][0]["serverAddress"];
    ensure!(*told == format!("api.example.com:{}", s.port()), "{versions}");

    let made = s.create(PODS, &pod("a"))?;
    let seconds: Vec<_> = made["spec"]["tolerations"].as_array().context("no tolerations")?.iter().collect();
    ensure!(seconds.iter().map(|t| &t["tolerationSeconds"]).eq([&json!(7), &json!(8)]), "{seconds:?}");

    // Another process may share the port.
    let flags = ["--permit-port-sharing".to_owned()];
    let other = tempfile::tempdir()?;
    let mut beside = Server::command("kube-apiserver", s.port(), other.path(), &flags).spawn()?;
    let shared = eventually("the other one", || {
        ensure!(beside.try_wait()?.is_none(), "it ended");
        Ok(other.path().join("kubeconfig").exists().then_some(()))
    });
    beside.kill()?;
    beside.wait()?;
    shared
}

#[test]
fn ciphers_and_key_exchanges() -> Result<()> {
    let s = Server::start(&[
        "--tls-cipher-suites=TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_RSA_WITH_AES_128_CBC_SHA",
        "--tls-curve-preferences=23",
        "--goaway-chance=0.02",
        "--http2-max-streams-per-connection=7",
    ])?;
    let settings = Http2::connect(&s, true)?.next()?.context("no settings")?;
    let most = settings.payload.chunks(6).find(|setting| setting.starts_with(&[0, 3]));
    ensure!(settings.kind == SETTINGS && most == Some(&[0, 3, 0, 0, 0, 7][..]), "{settings:?}");
    let ask = |flags: &[&str]| {
        let request = s.get("/version").flag("--tls-max").flag("1.2");
        flags.iter().fold(request, |request, flag| request.flag(flag)).send()
    };
    ask(&["--ciphers", "ECDHE-ECDSA-AES128-GCM-SHA256"])?.expect(200)?;
    ensure!(ask(&["--ciphers", "ECDHE-ECDSA-AES256-GCM-SHA384"]).is_err());
    s.get("/version").flag("--curves").flag("P-256").send()?.expect(200)?;
    ensure!(s.get("/version").flag("--curves").flag("P-384").send().is_err());

    // Of 800 requests on connections that are kept, some end theirs; the probability of none is one in ten million.
    let mut curl = Command::new("curl");
    curl.args([
        "-q",
        "--silent",
        "--show-error",
        "--http2",
        "--write-out",
        "\n%{http_code} %{num_connects}\n",
    ]);
    for (flag, file) in [("--cacert", "ca.pem"), ("--cert", "cert.pem"), ("--key", "key.pem")] {
        curl.arg(flag).arg(s.path(file));
    }
    curl.args(vec![format!("https://127.0.0.1:{}/readyz", s.port()); 800]);
    let out = curl.output()?;
    let text = String::from_utf8(out.stdout)?;
    let lines: Vec<_> = text.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit())).collect();
    ensure!(lines.len() == 800 && lines.iter().all(|line| line.contains("200 ")), "{lines:?}");
    let connections = lines.iter().filter(|line| line.ends_with("200 1")).count();
    ensure!((2..100).contains(&connections), "{connections} connections");
    Ok(())
}

/// Writes a certificate that is signed by itself, and its key.
fn certificate(dir: &Path, file: &str, common: &str, names: &[&str]) -> Result<()> {
    let mut params = CertificateParams::new(names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>())?;
    params.distinguished_name.push(DnType::CommonName, common);
    let key = KeyPair::generate()?;
    std::fs::write(dir.join(format!("{file}.crt")), params.self_signed(&key)?.pem())?;
    Ok(std::fs::write(dir.join(format!("{file}.key")), key.serialize_pem())?)
}

#[test]
fn certificates_by_name() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().to_owned();
    certificate(&path, "one", "one", &["one.example.com"])?;
    certificate(&path, "two", "two", &["x.two.example.com", "localhost"])?;
    let flag = |file: &str, names: &str| {
        format!("--tls-sni-cert-key={0}/{file}.crt,{0}/{file}.key{names}", path.display())
    };
    let flags = [flag("one", ""), flag("two", ":*.two.example.com")];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let s = Server::start_in(dir, "kube-apiserver", &flags)?;
    // Whether the server shows, for a name, the certificate in a file.
    let shows = |name: &str, file: &Path| -> Result<bool> {
        let mut curl = Command::new("curl");
        curl.args(["-q", "--silent", "--fail", "--resolve"]).arg(format!("{name}:{}:127.0.0.1", s.port()));
        curl.arg("--cacert").arg(file).arg(format!("https://{name}:{}/readyz", s.port()));
        Ok(curl.stdout(Stdio::null()).status()?.success())
    };
    let (one, two, usual) = (path.join("one.crt"), path.join("two.crt"), s.path("ca.pem"));
    ensure!(shows("one.example.com", &one)? && !shows("one.example.com", &two)?);
    ensure!(shows("x.two.example.com", &two)? && !shows("x.two.example.com", &one)?);
    ensure!(shows("localhost", &usual)?, "the usual certificate has the name, and no other was named for it");
    // The files are read again.
    certificate(&path, "one", "one", &["one.example.com", "other.example.com"])?;
    eventually("the new certificate", || {
        Ok((shows("one.example.com", &one)? && shows("other.example.com", &one)?).then_some(()))
    })
}

/// A request that takes some seconds, because its body comes slowly.
fn slow(s: &Server, name: &str) -> Result<testkit::Pending> {
    let mut object = map(name);
    object["data"]["k"] = "x".repeat(60_000).into();
    // An answer before the end of the body is an error to curl in HTTP/2.
    s.request("POST", MAPS).flag("--http1.1").flag("--limit-rate").flag("10k").json(&object).send_later()
}

#[test]
fn requests_have_their_time() -> Result<()> {
    let s = Server::start(&["--request-timeout=2s", "--min-request-timeout=1"])?;
    let begin = Instant::now();
    let late = slow(&s, "slow")?;
    let late = late.wait()?.expect(504)?.json()?;
    ensure!(late["reason"] == "Timeout" && begin.elapsed() < Duration::from_secs(5), "{late}");
    let begin = Instant::now();
    let mut watch = s.get(&format!("{MAPS}?watch=true")).stream()?;
    while watch.line()?.is_some() {}
    let took = begin.elapsed();
    ensure!((Duration::from_millis(900)..Duration::from_secs(5)).contains(&took), "{took:?}");
    Ok(())
}

#[test]
fn the_end_of_a_server() -> Result<()> {
    let mut s = Server::start(&[
        "--shutdown-delay-duration=2s",
        "--shutdown-send-retry-after",
        "--shutdown-watch-termination-grace-period=5s",
    ])?;
    let mut watch = s.get(&format!("{MAPS}?watch=true")).stream()?;
    ensure!(watch.head.status == 200);
    let under_way = slow(&s, "last")?;
    std::thread::sleep(Duration::from_millis(500));
    let begin = Instant::now();
    ensure!(Command::new("kill").arg(s.pid().to_string()).status()?.success());
    eventually("it is not ready", || Ok((s.get("/readyz").send()?.status == 500).then_some(())))?;
    ensure!(begin.elapsed() < Duration::from_secs(2));
    s.get("/livez").send()?.expect(200)?;
    s.create(MAPS, &map("late"))?;
    // The delay is over: what is under way goes on, what comes goes elsewhere.
    let refused = eventually("it takes no more", || {
        let answer = s.get(MAPS).flag("--http1.1").send()?;
        Ok((answer.status != 200).then_some(answer))
    })?;
    ensure!(begin.elapsed() >= Duration::from_secs(2));
    let refused = refused.expect(429)?;
    ensure!(refused.text() == "The apiserver is shutting down, please try again later.\n");
    ensure!(refused.header("retry-after") == "5" && refused.header("connection") == "close");
    s.get("/metrics").send()?.expect(200)?;
    while watch.line()?.is_some() {}
    under_way.wait()?.expect(201)?;
    s.stop(rustix::process::Signal::TERM)?;
    ensure!(begin.elapsed() < Duration::from_secs(30));
    Ok(())
}

#[test]
fn what_a_server_allows_and_keeps() -> Result<()> {
    let s = Server::start(&[
        NO_ACCOUNTS,
        "--advertise-address=192.0.2.1",
        "--kubernetes-service-node-port=30443",
        "--endpoint-reconciler-type=none",
        "--enable-garbage-collector=false",
        "--enable-logs-handler",
        "--kubelet-preferred-address-types=ExternalIP",
    ])?;
    let service = s.get("/api/v1/namespaces/default/services/kubernetes").send()?.expect(200)?.json()?;
    ensure!(service["spec"]["type"] == "NodePort" && service["spec"]["ports"][0]["nodePort"] == 30443);
    s.get("/api/v1/namespaces/default/endpoints/kubernetes").send()?.expect(404)?;

    let mut privileged = pod("p");
    privileged["spec"]["containers"][0]["securityContext"] = json!({"privileged": true});
    let refused = s.request("POST", PODS).json(&privileged).send()?.expect(422)?.json()?;
    let why = "Pod \"p\" is invalid: spec.containers[0].securityContext.privileged: Forbidden: disallowed by cluster policy";
    ensure!(refused["message"] == why, "{refused}");

    // Nobody would take the finalizer away.
    s.create(MAPS, &map("a"))?;
    s.request("DELETE", &format!("{MAPS}/a?propagationPolicy=Foreground")).send()?.expect(200)?;
    s.get(&format!("{MAPS}/a")).send()?.expect(404)?;

    let page = s.get("/logs/").send()?.expect(200)?;
    ensure!(page.header("content-type") == "text/html; charset=utf-8" && page.text().contains("<pre>"));
    s.get("/logs/no/such").send()?.expect(404)?;
    s.anonymous("GET", "/logs/").send()?.expect(403)?;

    let node = json!({"metadata": {"name": "n"}, "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.7"}]}});
    s.create("/api/v1/nodes", &node)?;
    let failed = s.get("/api/v1/nodes/n/proxy/healthz").send()?.expect(500)?.json()?;
    let why = "no preferred addresses found; known addresses: [{InternalIP 192.0.2.7}]";
    ensure!(failed["message"] == why, "{failed}");

    let flags = s.get("/flagz").send()?.expect(200)?;
    for line in [
        "allow-privileged=false",
        "enable-garbage-collector=false",
        "endpoint-reconciler-type=none",
        "request-timeout=1m0s",
        "kubelet-preferred-address-types=ExternalIP",
    ] {
        ensure!(flags.text().lines().any(|l| l == line), "{line} is not in {}", flags.text());
    }
    s.get("/flagz").accept("application/json").send()?.expect(406)?;
    let object = |kind: &str| format!("application/json;v=v1beta1;g=config.k8s.io;as={kind}");
    let flags = s.get("/flagz").accept(&object("Flagz")).send()?.expect(200)?.json()?;
    ensure!(flags["kind"] == "Flagz" && flags["metadata"]["name"] == "apiserver", "{flags}");
    ensure!(flags["flags"]["request-timeout"] == "1m0s", "{flags}");
    let page = s.get("/statusz").send()?.expect(200)?;
    ensure!(page.text().starts_with("\napiserver statusz\n"), "{}", page.text());
    ensure!(page.text().contains("\nEmulation version: 1.36\n"), "{}", page.text());
    let status = s.get("/statusz").accept(&object("Statusz")).send()?.expect(200)?.json()?;
    ensure!(status["apiVersion"] == "config.k8s.io/v1beta1" && status["kind"] == "Statusz", "{status}");
    let paths = json!(["/flagz", "/healthz", "/livez", "/metrics", "/readyz", "/statusz", "/version"]);
    ensure!(status["paths"] == paths && status["uptimeSeconds"].is_u64(), "{status}");
    let refused = s.get("/statusz").accept(&object("Flagz")).send()?.expect(406)?.json()?;
    ensure!(refused["reason"] == "NotAcceptable", "{refused}");
    for path in ["/flagz", "/statusz"] {
        s.anonymous("GET", path).send()?.expect(403)?;
    }
    Ok(())
}

#[test]
fn without_those_flags() -> Result<()> {
    let s = Server::start(&[NO_ACCOUNTS, "--allow-privileged", "--advertise-address=192.0.2.1"])?;
    let service = s.get("/api/v1/namespaces/default/services/kubernetes").send()?.expect(200)?.json()?;
    ensure!(service["spec"]["type"] == "ClusterIP");
    s.get("/api/v1/namespaces/default/endpoints/kubernetes").send()?.expect(200)?;
    let mut privileged = pod("p");
    privileged["spec"]["containers"][0]["securityContext"] = json!({"privileged": true});
    s.create(PODS, &privileged)?;
    s.create(MAPS, &map("a"))?;
    s.request("DELETE", &format!("{MAPS}/a?propagationPolicy=Foreground")).send()?.expect(200)?;
    s.get(&format!("{MAPS}/a")).send()?.expect(200)?;
    s.get("/logs/").send()?.expect(404)?;
    Ok(())
}

#[test]
fn pages_that_tell_of_the_server_can_be_off() -> Result<()> {
    let s = Server::start(&[NO_ACCOUNTS, "--feature-gates=ComponentFlagz=false,ComponentStatusz=false"])?;
    let paths = s.get("/").send()?.expect(200)?.json()?;
    for path in ["/flagz", "/statusz"] {
        s.get(path).send()?.expect(404)?;
        ensure!(!paths["paths"].as_array().is_some_and(|all| all.contains(&json!(path))), "{paths}");
    }
    Ok(())
}

#[test]
fn redirects_of_aggregated_servers() -> Result<()> {
    const MOVED: &str = "/apis/w.example/v1/namespaces/default/fishes/moved";
    const HERE: &str = "/apis/w.example/v1/namespaces/default/fishes/here";
    const PAGE: &str = "/apis/w.example/v1/namespaces/default/fishes/page";
    for (flags, status) in [(&[][..], 502), (&["--aggregator-reject-forwarding-redirect=false"][..], 307)] {
        let s = Server::start(flags)?;
        let other =
            Webhook::aggregated(aggregation::HOST, &aggregation::front_proxy_authority(&s)?, |question| {
                match question.path.as_str() {
                    MOVED => Reply::Raw(307, vec!["Location: https://elsewhere.example/".into()], Vec::new()),
                    HERE => Reply::Raw(307, vec!["Location: /other?q=1".into()], Vec::new()),
                    PAGE => {
                        Reply::Raw(200, vec!["Content-Type: text/html".into()], b"<a href=\"/x\">".into())
                    }
                    _ => aggregation::fishes(question),
                }
            })?;
        aggregation::lead_to(&s, &other)?;
        let service = aggregation::api_service("w.example", "v1", Some(other.bundle()));
        s.create("/apis/apiregistration.k8s.io/v1/apiservices", &service)?;
        aggregation::wait_for(&s, "v1.w.example", "Passed")?;
        let moved = s.get(MOVED).send()?.expect(status)?;
        let location = moved.header("location");
        ensure!((location == "https://elsewhere.example/") == (status == 307), "{location}");
        // Links of its own lead to the address of its Service, where this server has asked it.
        let service = s.get("/api/v1/namespaces/default/services/fish").send()?.expect(200)?.json()?;
        let own = format!("https://{}:443", service["spec"]["clusterIP"].as_str().unwrap_or_default());
        let here = s.get(HERE).send()?.expect(status)?;
        ensure!((here.header("location") == format!("{own}/other?q=1")) == (status == 307), "{here:?}");
        let page = s.get(PAGE).send()?.expect(200)?.text();
        ensure!(page == format!("<a href=\"{own}/x\">"), "{page}");
        let asked = other.asked();
        let last = asked.last().context("it was asked")?;
        ensure!(last.header("x-forwarded-host").eq([own.trim_start_matches("https://")]), "{:?}", last.head);
        ensure!(last.header("host").eq([own.trim_start_matches("https://")]), "{:?}", last.head);
    }
    Ok(())
}

#[test]
fn what_cannot_be_is_told() -> Result<()> {
    let check = |flag: &str, why: &str| -> Result<()> {
        let dir = tempfile::tempdir()?;
        let out = Server::command("kube-apiserver", testkit::free_port()?, dir.path(), &[flag.to_owned()])
            .stderr(Stdio::piped())
            .output()?;
        let told = String::from_utf8_lossy(&out.stderr).into_owned();
        ensure!(!out.status.success() && told.contains(why), "{flag}: {told}");
        Ok(())
    };
    for (flag, why) in [
        ("--request-timeout=-1s", "--request-timeout can not be negative value"),
        ("--min-request-timeout=-1", "--min-request-timeout can not be negative value"),
        ("--livez-grace-period=-1s", "--livez-grace-period can not be a negative value"),
        ("--shutdown-delay-duration=-1s", "--shutdown-delay-duration can not be negative value"),
        (
            "--shutdown-watch-termination-grace-period=-1s",
            "shutdown-watch-termination-grace-period, if provided, can not be a negative value",
        ),
        ("--goaway-chance=0.03", "--goaway-chance can not be less than 0 or greater than 0.02"),
        ("--tls-min-version=VersionTLS14", "unknown tls version \"VersionTLS14\""),
        ("--tls-cipher-suites=TLS_X", "Cipher suite TLS_X not supported or doesn't exist"),
        ("--tls-sni-cert-key=/nonexistent,/nonexistent", "failed to load SNI cert and key"),
        ("--cors-allowed-origins=example.com", "does not pin to start/end of host in the origin header"),
        ("--strict-transport-security-directives=x", "--strict-transport-security-directives invalid"),
        ("--endpoint-reconciler-type=master-count", "Reconciler not implemented: master-count"),
        (
            "--kubernetes-service-node-port=80",
            "kubernetes service node port range 30000-32767 doesn't contain 80",
        ),
        ("--storage-media-type=application/cbor", "--storage-media-type \"application/cbor\" invalid"),
        (
            "--encryption-provider-config-automatic-reload",
            "--encryption-provider-config-automatic-reload must be set with --encryption-provider-config",
        ),
        (
            "--service-account-max-token-expiration=1m",
            "the service-account-max-token-expiration must be between 1 hour and 2^32 seconds",
        ),
    ] {
        check(flag, why)?;
    }
    Ok(())
}
