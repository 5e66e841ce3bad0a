//! Extenders, asked over real HTTP. Sockets know no simulated time, so these tests run in real time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use access::pki::{Authority, Credential, Profile, Usage};
use anyhow::{Context, Error, Result};
use client::Verb;
use ferrokube_simulation::Cluster;
use k8s_openapi::api::core::v1::{Node, Pod};
use scheduler::config::read;
use scheduler::run::Settings;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig, crypto::aws_lc_rs};

use crate::common::{bare, condition, eventually, merge, pod};

/// As long as it takes on a slow machine.
const LONG: Duration = Duration::from_mins(2);

/// The questions that an extender got: the last part of the path, and the body.
type Asked = Arc<Mutex<Vec<(String, Value)>>>;

/// The answer to a question, and its code.
type Answer = fn(&str, &Value) -> (u16, Value);

/// A connection, with TLS or without.
trait Stream: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> Stream for T {}

/// Reads one request: its path and its body; `None` at the end of the connection.
async fn request(stream: &mut impl Stream) -> Result<Option<(String, Value)>> {
    let mut read = Vec::new();
    loop {
        let mut some = [0; 4096];
        let n = stream.read(&mut some).await?;
        if n == 0 {
            return Ok(None);
        }
        read.extend_from_slice(some.get(..n).unwrap_or_default());
        let Some(end) = read.windows(4).position(|w| w == b"\r\n\r\n") else { continue };
        let (head, body) = read.split_at(end + 4);
        let head = std::str::from_utf8(head)?.to_lowercase();
        let length = head.lines().find_map(|l| l.strip_prefix("content-length: "));
        if body.len() < length.context("a length")?.trim().parse()? {
            continue;
        }
        let path = head.split(' ').nth(1).context("a path")?;
        let verb = path.rsplit('/').next().context("a verb")?.to_owned();
        return Ok(Some((verb, serde_json::from_slice(body)?)));
    }
}

async fn serve(mut stream: impl Stream, asked: Asked, answer: Answer) -> Result<()> {
    while let Some((verb, body)) = request(&mut stream).await? {
        let (code, said) = answer(&verb, &body);
        if let Ok(mut asked) = asked.lock() {
            asked.push((verb, body));
        }
        let said = said.to_string();
        let head = format!("HTTP/1.1 {code} X\r\ncontent-length: {}\r\n\r\n", said.len());
        stream.write_all(format!("{head}{said}").as_bytes()).await?;
    }
    Ok(())
}

/// The side of an extender that speaks TLS.
#[derive(Clone)]
struct Tls {
    acceptor: TlsAcceptor,
    /// The certificates of clients, DER.
    clients: Arc<Mutex<Vec<Vec<u8>>>>,
}

/// The parties in the tests of TLS.
struct Parties {
    authority: Authority,
    /// Another authority, which has nothing to do with it.
    other: Authority,
    /// The scheduler.
    client: Credential,
    tls: Tls,
}

impl Parties {
    /// An extender with a certificate for `extender.test` alone, which verifies the certificates of clients that have one.
    fn new() -> Result<Self> {
        let now = jiff::Timestamp::now();
        let [authority, other] = ["authority", "other"].map(|name| Authority::generate(name, now));
        let (authority, other) = (authority?, other?);
        let profile = Profile {
            common_name: "extender".into(),
            organization: None,
            usage: Usage::Server,
            names: ["extender.test".to_owned()].into(),
            addresses: [].into(),
        };
        let server = authority.issue(&profile, now)?;
        let client = authority.issue(&Profile::client("scheduler", None), now)?;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(authority.certificate())?;
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(verifier.allow_unauthenticated().build()?)
            .with_single_cert(vec![server.certificate()], server.key())?;
        let tls = Tls { acceptor: TlsAcceptor::from(Arc::new(config)), clients: Arc::default() };
        Ok(Self { authority, other, client, tls })
    }

    fn clients(&self) -> usize {
        self.tls
            .clients
            .lock()
            .map(|all| all.iter().filter(|c| **c == *self.client.certificate()).count())
            .unwrap_or(0)
    }
}

struct Run {
    cluster: Cluster,
    asked: Asked,
}

impl Run {
    /// Three nodes of two CPUs, and a scheduler with an extender of this configuration that answers like this.
    async fn start(config: Value, answer: Answer) -> Result<Self> {
        Self::start_with(config, answer, None).await
    }

    /// The same, where the extender may speak TLS.
    async fn start_with(config: Value, answer: Answer, tls: Option<Tls>) -> Result<Self> {
        let cluster = bare().await?;
        for name in ["a", "b", "c"] {
            let room = json!({"cpu": "2", "pods": "9"});
            let status = json!({"allocatable": room, "capacity": room});
            cluster.put::<Node>(&json!({"metadata": {"name": name}, "status": status})).await?;
        }
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let mut extender = json!({"urlPrefix": format!("{scheme}://{}/extender", listener.local_addr()?)});
        merge(&mut extender, &config);
        let asked = Asked::default();
        let told = asked.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (told, tls) = (told.clone(), tls.clone());
                tokio::spawn(async move {
                    let Some(tls) = tls else { return serve(stream, told, answer).await };
                    let stream = tls.acceptor.accept(stream).await?;
                    if let Some(client) = stream.get_ref().1.peer_certificates().and_then(<[_]>::first)
                        && let Ok(mut seen) = tls.clients.lock()
                    {
                        seen.push(client.to_vec());
                    }
                    serve(stream, told, answer).await
                });
            }
        });
        let config = json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
            "extenders": [extender],
        });
        let config = read::parse(config.to_string().as_bytes()).map_err(Error::msg)?;
        let plugins = scheduler::plugins::registry().map_err(Error::msg)?;
        cluster.faults().record();
        cluster.scheduler_with(Settings::new(&config, &plugins).map_err(Error::msg)?);
        Ok(Self { cluster, asked })
    }

    async fn pod(&self, name: &str, more: Value) -> Result<()> {
        let tolerations = json!([{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]);
        let mut whole = pod(name, json!({"spec": {"tolerations": tolerations}}));
        merge(&mut whole, &more);
        self.cluster.put::<Pod>(&whole).await.map(drop)
    }

    fn asked(&self, verb: &str) -> Vec<Value> {
        let all = self.asked.lock().map(|all| all.clone()).unwrap_or_default();
        all.into_iter().filter(|(v, _)| v == verb).map(|(_, body)| body).collect()
    }

    async fn bound(&self, name: &str) -> Result<String> {
        let mut node = None;
        eventually(&format!("{name} has a node"), LONG, async || {
            let pod = self.cluster.get::<Pod>("default", name).await?;
            node = pod.and_then(|p| p.spec?.node_name);
            Ok(node.is_some())
        })
        .await?;
        node.context("a node")
    }

    async fn says(&self, name: &str, reason: &str, part: &str) -> Result<()> {
        eventually(&format!("{name}: {part}"), LONG, async || {
            let pod = self.cluster.get::<Pod>("default", name).await?;
            Ok(pod.as_ref().and_then(|p| condition(p, "PodScheduled")).is_some_and(|c| {
                c.reason.as_deref() == Some(reason) && c.message.as_deref().is_some_and(|m| m.contains(part))
            }))
        })
        .await
    }
}

#[tokio::test]
async fn nodes_are_filtered_and_scored_by_name() -> Result<()> {
    let config = json!({"filterVerb": "filter", "prioritizeVerb": "prioritize", "weight": 100, "nodeCacheCapable": true});
    let run = Run::start(config, |verb, _| {
        let answer = match verb {
            "filter" => json!({"NodeNames": ["b", "c"], "FailedNodes": {"a": "not this one"}}),
            _ => json!([{"Host": "b", "Score": 1}, {"Host": "c", "Score": 10}]),
        };
        (200, answer)
    })
    .await?;
    run.pod("p", json!({})).await?;
    assert_eq!(run.bound("p").await?, "c");
    let filter = run.asked("filter");
    let mut names: Vec<&str> =
        filter[0]["NodeNames"].as_array().context("names")?.iter().filter_map(Value::as_str).collect();
    names.sort_unstable();
    assert_eq!((names, &filter[0]["Nodes"]), (vec!["a", "b", "c"], &Value::Null));
    assert_eq!(filter[0]["Pod"]["metadata"]["name"], "p");
    assert_eq!(run.asked("prioritize").len(), 1);
    Ok(())
}

#[tokio::test]
async fn nodes_are_filtered_whole() -> Result<()> {
    // Go's decoder takes field names in any case, and so do we.
    let run = Run::start(json!({"filterVerb": "filter"}), |_, question| {
        let nodes = question["Nodes"]["items"].as_array().cloned().unwrap_or_default();
        let only: Vec<Value> = nodes.into_iter().filter(|n| n["metadata"]["name"] == "b").collect();
        (200, json!({"nodes": {"items": only}, "failedNodes": {"a": "no"}}))
    })
    .await?;
    run.pod("p", json!({})).await?;
    assert_eq!(run.bound("p").await?, "b");
    assert_eq!(run.asked("filter")[0]["NodeNames"], Value::Null);
    Ok(())
}

#[tokio::test]
async fn refusals_are_told() -> Result<()> {
    let run = Run::start(json!({"filterVerb": "filter", "nodeCacheCapable": true}), |_, _| {
        let failed = json!({"a": "no room", "b": "no room"});
        (200, json!({"NodeNames": [], "FailedNodes": failed, "FailedAndUnresolvableNodes": {"c": "never"}}))
    })
    .await?;
    run.pod("p", json!({})).await?;
    run.says("p", "Unschedulable", "0/3 nodes are available: 1 never, 2 no room.").await
}

#[tokio::test]
async fn an_extender_that_fails_is_needed_or_not() -> Result<()> {
    let down: Answer = |_, _| (500, json!({}));
    let run = Run::start(json!({"filterVerb": "filter"}), down).await?;
    run.pod("p", json!({})).await?;
    run.says("p", "SchedulerError", "failed filter with extender at URL http://127.0.0.1:").await?;
    let run = Run::start(json!({"filterVerb": "filter", "ignorable": true}), down).await?;
    run.pod("p", json!({})).await?;
    run.bound("p").await?;
    let run = Run::start(json!({"filterVerb": "filter"}), |_, _| (200, json!({"Error": "broken"}))).await?;
    run.pod("p", json!({})).await?;
    run.says("p", "SchedulerError", "broken").await
}

#[tokio::test]
async fn an_extender_binds_the_pods_that_want_its_resources() -> Result<()> {
    let managed = json!([{"name": "example.com/foo", "ignoredByScheduler": true}]);
    let config = json!({"bindVerb": "bind", "filterVerb": "filter", "nodeCacheCapable": true, "managedResources": managed});
    let run = Run::start(config, |verb, question| {
        if verb == "bind" { (200, json!({})) } else { (200, json!({"NodeNames": question["NodeNames"]})) }
    })
    .await?;
    // No node has the resource, and the scheduler does not look.
    let wants = json!({"requests": {"example.com/foo": "1"}, "limits": {"example.com/foo": "1"}});
    let containers = json!([{"name": "c", "image": "i", "resources": wants}]);
    run.pod("p", json!({"spec": {"containers": containers}})).await?;
    eventually("it is to bind the Pod", LONG, async || Ok(!run.asked("bind").is_empty())).await?;
    let asked = run.asked("bind");
    let made = run.cluster.get::<Pod>("default", "p").await?.context("the Pod")?;
    assert_eq!((&asked[0]["PodName"], &asked[0]["PodNamespace"]), (&json!("p"), &json!("default")));
    assert_eq!(asked[0]["PodUID"], json!(made.metadata.uid));
    assert!(["a", "b", "c"].contains(&asked[0]["Node"].as_str().context("a node")?));
    run.pod("plain", json!({})).await?;
    run.bound("plain").await?;
    let seen = run.cluster.faults().seen();
    let bound: Vec<&str> = seen
        .iter()
        .filter(|c| c.verb == Verb::Create && c.subresource == "binding")
        .map(|c| &*c.name)
        .collect();
    assert_eq!((bound, run.asked("filter").len()), (vec!["plain"], 1));
    Ok(())
}

/// Room could be made anywhere; the extender wants it on one node.
#[tokio::test]
async fn an_extender_chooses_among_victims() -> Result<()> {
    let run = Run::start(json!({"preemptVerb": "preempt"}), |_, question| {
        let victims = &question["NodeNameToVictims"]["b"];
        let pods = victims["Pods"].as_array().cloned().unwrap_or_default();
        let named: Vec<Value> = pods.iter().map(|p| json!({"UID": p["metadata"]["uid"]})).collect();
        (200, json!({"NodeNameToMetaVictims": {"b": {"Pods": named, "NumPDBViolations": 0}}}))
    })
    .await?;
    let classes = client::Resource {
        group: "scheduling.k8s.io".into(),
        version: "v1".into(),
        plural: "priorityclasses".into(),
    };
    let class = json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 9,
    });
    run.cluster.admin().resource::<Value>(classes, "").post::<Value, Value>("", "", &class).await?;
    let containers = json!([{"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}}}]);
    for node in ["a", "b", "c"] {
        let spec = json!({"containers": containers, "nodeName": node});
        run.pod(&format!("on-{node}"), json!({"spec": spec})).await?;
    }
    run.pod("high", json!({"spec": {"containers": containers, "priorityClassName": "high"}})).await?;
    eventually("the victim goes", LONG, async || {
        let victim = run.cluster.get::<Pod>("default", "on-b").await?;
        Ok(victim.is_none_or(|v| v.metadata.deletion_timestamp.is_some()))
    })
    .await?;
    for node in ["a", "c"] {
        let other = run.cluster.get::<Pod>("default", &format!("on-{node}")).await?.context("it stays")?;
        assert!(other.metadata.deletion_timestamp.is_none());
    }
    assert!(run.asked("preempt")[0]["Pod"]["metadata"]["name"] == "high");
    Ok(())
}

fn base64(text: &str) -> String {
    let encoded = serde_json::to_value(k8s_openapi::ByteString(text.as_bytes().to_vec()));
    encoded.ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default()
}

/// An extender is asked over TLS with these settings; whether it can be.
async fn over_tls(parties: &Parties, config: Value, works: bool) -> Result<()> {
    let said = config.to_string();
    let mut whole = json!({"filterVerb": "filter", "nodeCacheCapable": true});
    merge(&mut whole, &config);
    let answer: Answer = |_, _| (200, json!({"NodeNames": ["b"]}));
    let run = Run::start_with(whole, answer, Some(parties.tls.clone())).await?;
    run.pod("p", json!({})).await?;
    if works {
        assert_eq!(run.bound("p").await?, "b", "{said}");
    } else {
        run.says("p", "SchedulerError", "Post \"https://127.0.0.1:").await.context(said)?;
        assert!(run.asked("filter").is_empty());
    }
    Ok(())
}

#[tokio::test]
async fn extenders_are_verified() -> Result<()> {
    let parties = Parties::new()?;
    let authority = base64(&parties.authority.certificate_pem);
    let check = async |config: Value, works: bool| over_tls(&parties, config, works).await;
    // Without an authority nobody is verified.
    check(json!({"enableHTTPS": true}), true).await?;
    check(json!({"tlsConfig": {"insecure": true}}), true).await?;
    check(json!({"tlsConfig": {}}), false).await?;
    check(
        json!({"enableHTTPS": true, "tlsConfig": {"caData": authority, "serverName": "extender.test"}}),
        true,
    )
    .await?;
    check(json!({"tlsConfig": {"caData": authority, "serverName": "extender.test"}}), true).await?;
    check(json!({"tlsConfig": {"caData": authority, "serverName": "other.test"}}), false).await?;
    check(json!({"tlsConfig": {"caData": authority}}), false).await?;
    let other = base64(&parties.other.certificate_pem);
    check(json!({"tlsConfig": {"caData": other, "serverName": "extender.test"}}), false).await?;
    assert_eq!(parties.clients(), 0, "nobody had a certificate");
    Ok(())
}

#[tokio::test]
async fn extenders_see_who_asks() -> Result<()> {
    let parties = Parties::new()?;
    let dir = tempfile::tempdir()?;
    let file = |name: &str, text: &str| -> Result<String> {
        let path = dir.path().join(name);
        std::fs::write(&path, text)?;
        Ok(path.display().to_string())
    };
    let (certificate, key) = (&parties.client.certificate_pem, &parties.client.key_pem);
    let authority = file("ca", &parties.authority.certificate_pem)?;
    let files = json!({
        "caFile": authority, "certFile": file("cert", certificate)?, "keyFile": file("key", key)?,
        "serverName": "extender.test",
    });
    over_tls(&parties, json!({"enableHTTPS": true, "tlsConfig": files}), true).await?;
    assert_eq!(parties.clients(), 1);
    // Given data take the place of a file.
    let data = json!({
        "caFile": authority, "certFile": "/nowhere", "certData": base64(certificate), "keyData": base64(key),
        "serverName": "extender.test",
    });
    over_tls(&parties, json!({"tlsConfig": data}), true).await?;
    assert_eq!(parties.clients(), 2);
    // A certificate without its key is none.
    let half = json!({"caFile": authority, "certData": base64(certificate), "serverName": "extender.test"});
    over_tls(&parties, json!({"tlsConfig": half}), true).await?;
    assert_eq!(parties.clients(), 2);
    Ok(())
}

#[tokio::test]
async fn an_extender_has_so_much_time() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("https://{}", listener.local_addr()?);
    // Nobody answers the hello.
    let config = json!({"urlPrefix": url, "enableHTTPS": true, "httpTimeout": "50ms"});
    let run = Run::start(config, |_, _| (200, json!({}))).await?;
    run.pod("p", json!({})).await?;
    run.bound("p").await?;
    let config =
        json!({"urlPrefix": url, "enableHTTPS": true, "httpTimeout": "50ms", "filterVerb": "filter"});
    let run = Run::start(config, |_, _| (200, json!({}))).await?;
    run.pod("p", json!({})).await?;
    run.says("p", "SchedulerError", "context deadline exceeded").await
}

#[test]
fn settings_of_tls_that_are_wrong() -> Result<()> {
    let check = |config: Value, expected: &str| -> Result<()> {
        let mut extender = json!({"urlPrefix": "https://127.0.0.1/", "filterVerb": "filter"});
        merge(&mut extender, &config);
        let config = json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
            "extenders": [extender],
        });
        let config = read::parse(config.to_string().as_bytes()).map_err(Error::msg)?;
        let plugins = scheduler::plugins::registry().map_err(Error::msg)?;
        let why = Settings::new(&config, &plugins).err().context("it is wrong")?;
        assert!(why.contains(expected), "{why}");
        Ok(())
    };
    let both = json!({"tlsConfig": {"insecure": true, "caData": base64("x")}});
    check(both, "specifying a root certificates file with the insecure flag is not allowed")?;
    check(json!({"tlsConfig": {"caFile": "/nowhere"}}), "open /nowhere: ")?;
    check(json!({"tlsConfig": {"caData": base64("x")}}), "unable to load root certificates")?;
    check(json!({"tlsConfig": {"certData": base64("x"), "keyData": base64("x")}}), "the client's key")
}
