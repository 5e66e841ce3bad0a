use super::*;

/// containerd's own file (`hosts_test.go`, `TestParseHostFile`).
const FILE: &str = r#"
server = "https://test-default.registry"
ca = "/etc/path/default"
[header]
  x-custom-1 = "custom header"

[host."https://mirror.registry"]
  capabilities = ["pull"]
  ca = "/etc/certs/mirror.pem"
  skip_verify = false
  [host."https://mirror.registry".header]
    x-custom-2 = ["value1", "value2"]

[host."https://mirror-bak.registry/us"]
  capabilities = ["pull"]
  skip_verify = true

[host."http://mirror.registry"]
  capabilities = ["pull"]

[host."https://test-1.registry"]
  capabilities = ["pull", "resolve", "push", "referrers"]
  ca = ["/etc/certs/test-1-ca.pem", "/etc/certs/special.pem"]
  client = [["/etc/certs/client.cert", "/etc/certs/client.key"],["/etc/certs/client.pem", ""]]

[host."https://test-2.registry"]
  client = "/etc/certs/client.pem"

[host."https://test-3.registry"]
  client = ["/etc/certs/client-1.pem", "/etc/certs/client-2.pem"]

[host."https://noncompliantmirror.registry/v2/namespaceprefix"]
  capabilities = ["pull"]
  override_path = true

[host."https://noprefixnoncompliant.registry"]
  override_path = true

[host."https://onlyheader.registry".header]
  x-custom-1 = "justaheader"

[host."https://dial-timeout.registry"]
  dial_timeout = "3s"
"#;

fn host(scheme: Scheme, name: &str, path: &str) -> Host {
    Host {
        scheme,
        host: name.to_owned(),
        path: path.to_owned(),
        pull: true,
        resolve: true,
        ca: Vec::new(),
        client: Vec::new(),
        skip_verify: None,
        header: Vec::new(),
        dial_timeout: None,
    }
}

fn paths(files: &[&str]) -> Vec<PathBuf> {
    files.iter().map(PathBuf::from).collect()
}

fn header(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

#[test]
fn containerds_file() {
    use Scheme::{Http, Https};
    let expected = vec![
        Host {
            resolve: false,
            ca: paths(&["/etc/certs/mirror.pem"]),
            skip_verify: Some(false),
            header: vec![header("x-custom-2", "value1"), header("x-custom-2", "value2")],
            ..host(Https, "mirror.registry", "/v2")
        },
        Host { resolve: false, skip_verify: Some(true), ..host(Https, "mirror-bak.registry", "/us/v2") },
        Host { resolve: false, ..host(Http, "mirror.registry", "/v2") },
        Host {
            ca: paths(&["/etc/certs/test-1-ca.pem", "/etc/certs/special.pem"]),
            client: vec![
                ("/etc/certs/client.cert".into(), Some("/etc/certs/client.key".into())),
                ("/etc/certs/client.pem".into(), None),
            ],
            ..host(Https, "test-1.registry", "/v2")
        },
        Host {
            client: vec![("/etc/certs/client.pem".into(), None)],
            ..host(Https, "test-2.registry", "/v2")
        },
        Host {
            client: vec![("/etc/certs/client-1.pem".into(), None), ("/etc/certs/client-2.pem".into(), None)],
            ..host(Https, "test-3.registry", "/v2")
        },
        Host { resolve: false, ..host(Https, "noncompliantmirror.registry", "/v2/namespaceprefix") },
        host(Https, "noprefixnoncompliant.registry", ""),
        Host {
            header: vec![header("x-custom-1", "justaheader")],
            ..host(Https, "onlyheader.registry", "/v2")
        },
        Host { dial_timeout: Some(Duration::from_secs(3)), ..host(Https, "dial-timeout.registry", "/v2") },
        Host {
            ca: paths(&["/etc/path/default"]),
            header: vec![header("x-custom-1", "custom header")],
            ..host(Https, "test-default.registry", "/v2")
        },
    ];
    let parsed = parse(Path::new(""), FILE).unwrap();
    assert_eq!(parsed.hosts, expected);
    assert!(parsed.unknown.is_empty());
}

#[test]
fn faults_are_named() {
    let check = |text: &str, part: &str| {
        let error = parse(Path::new("/"), text).unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    };
    check("server = 1", "server: it must be a string");
    check("server = \"ftp://x\"", "scheme");
    check("server = \"x:\"", "no usable host");
    check("server = \"httpx://x\"", "scheme");
    check("server = \"https://\"", "no usable host");
    check("server = \"https://user@x\"", "no usable host");
    check("host = 1", "host: it must be a table");
    check("capabilities = [\"pul\"]", "unknown capability pul");
    check("ca = 1", "ca: it must be a string");
    check("client = [[\"a\"]]", "a pair");
    check("skip_verify = \"yes\"", "true or false");
    check("[header]\nx = 1", "header.x");
    check("[header]\nx = \"a\\nb\"", "it is no header");
    check("dial_timeout = \"3 seconds\"", "no duration");
    check("= 1", "");
    let parsed = parse(Path::new("/"), "skip_verfy = true").unwrap();
    assert_eq!(parsed.unknown, ["skip_verfy"]);
}

#[test]
fn durations_are_gos() {
    for (text, millis) in [("3s", Some(3000)), ("1m30s", Some(90_000)), ("1.5s", Some(1500)), ("0", Some(0))]
    {
        assert_eq!(duration(text), millis.map(Duration::from_millis), "{text}");
    }
    for bad in ["", "3", "s", "3x", "-1s", "1e999h", "..s"] {
        assert_eq!(duration(bad), None, "{bad}");
    }
}

/// containerd's defaults (`TestDefaultHosts`, `TestHTTPFallback`).
#[test]
fn registries_without_settings() {
    let check = |domain: &str, scheme, name: &str| {
        let hosts = load(&[], domain).unwrap();
        assert_eq!(hosts.len(), 1);
        assert_eq!((hosts[0].scheme, &*hosts[0].host, &*hosts[0].path), (scheme, name, "/v2"), "{domain}");
    };
    check("docker.io", Scheme::Https, "registry-1.docker.io");
    check("example.com", Scheme::Https, "example.com");
    check("example.com:5000", Scheme::Https, "example.com:5000");
    check("localhost:8080", Scheme::Either, "localhost:8080");
    check("localhost:80", Scheme::Http, "localhost:80");
    check("localhost:443", Scheme::Https, "localhost:443");
    check("localhost", Scheme::Https, "localhost");
    check("127.0.0.254:5000", Scheme::Either, "127.0.0.254:5000");
    check("127.0.0.254", Scheme::Https, "127.0.0.254");
    check("[::1]:5000", Scheme::Either, "[::1]:5000");
    check("10.0.0.1:5000", Scheme::Https, "10.0.0.1:5000");
}

#[test]
fn directories_are_found_in_order() {
    let root = tempfile::tempdir().unwrap();
    let write = |name: &str, server: &str| {
        fs::create_dir_all(root.path().join(name)).unwrap();
        fs::write(root.path().join(name).join("hosts.toml"), format!("server = \"{server}\"")).unwrap();
    };
    let check = |domain: &str, expected: &str| {
        let hosts = load(&[root.path().join("none"), root.path().to_owned()], domain).unwrap();
        assert_eq!(hosts.last().unwrap().host, expected, "{domain}");
    };
    check("a.test:5000", "a.test:5000");
    write("_default", "default.test");
    check("a.test:5000", "default.test");
    write("a.test:5000", "plain.test");
    check("a.test:5000", "plain.test");
    write("a.test_5000_", "escaped.test");
    check("a.test:5000", "escaped.test");
    write("docker.io", "");
    check("docker.io", "registry-1.docker.io");
}

/// `TestLoadCertFiles`.
#[test]
fn dockers_certificate_files() {
    let root = tempfile::tempdir().unwrap();
    let own = root.path().join("testing.io");
    fs::create_dir(&own).unwrap();
    for file in ["ca.crt", "client.cert", "client.key"] {
        fs::write(own.join(file), "x").unwrap();
    }
    let hosts = load(&[root.path().to_owned()], "testing.io").unwrap();
    let expected = Host {
        ca: vec![own.join("ca.crt")],
        client: vec![(own.join("client.cert"), Some(own.join("client.key")))],
        ..host(Scheme::Https, "testing.io", "/v2")
    };
    assert_eq!(hosts, [expected]);
    fs::remove_file(own.join("client.key")).unwrap();
    assert!(load(&[root.path().to_owned()], "testing.io").unwrap_err().to_string().contains("no key"));
}
