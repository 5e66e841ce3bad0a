//! Volumes with trust anchors and with certificates, which somebody issues.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
    SubjectPublicKeyInfo,
};
use rustls_pki_types::pem::PemObject;
use serde_json::{Value, json};
use testkit::{Cluster, Image, Options, Signal, eventually};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer;

const SIGNER: &str = "example.com/signer";
const KEY_TYPES: [&str; 6] = ["RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"];
const HOUR: u64 = 3600;

fn cluster(name: &str) -> Result<Cluster> {
    let flags = [
        "--feature-gates",
        "ClusterTrustBundle=true,ClusterTrustBundleProjection=true,PodCertificateRequest=true",
        "--runtime-config",
        "certificates.k8s.io/v1beta1=true",
        "--eviction-hard",
        "memory.available<10Mi,nodefs.available<1%,imagefs.available<1%",
    ];
    let images = vec![Image::busybox("test.local/app:1")?];
    Cluster::start(name, Options { images, flags: flags.map(str::to_owned).into(), ..Options::default() })
}

/// Makes a Pod that sleeps, with one projected volume at `/v`.
fn pod(c: &Cluster, name: &str, sources: &Value) -> Result<()> {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "c", "image": "test.local/app:1", "command": ["sleep", "100000"],
            "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
        "volumes": [{"name": "v", "projected": {"sources": sources}}]}});
    c.apply(&pod.to_string()).map(drop)
}

fn running(c: &Cluster, name: &str) -> Result<()> {
    eventually(&format!("{name} runs"), || {
        Ok((c.get("pod", name)?["status"]["phase"] == "Running").then_some(()))
    })
}

fn file(c: &Cluster, pod: &str, path: &str) -> Result<String> {
    c.kubectl(&["exec", pod, "--", "cat", &format!("/v/{path}")])
}

/// Waits for an Event about a Pod: of this reason, with this text.
fn event(c: &Cluster, pod: &str, reason: &str, text: &str) -> Result<()> {
    let field = format!("--field-selector=involvedObject.name={pod},reason={reason}");
    eventually(&format!("an event of {pod}: {reason} {text}"), || {
        let all: Value = serde_json::from_str(&c.kubectl(&["get", "events", &field, "-o", "json"])?)?;
        let items = all["items"].as_array().cloned().unwrap_or_default();
        let told = |e: &Value| e["message"].as_str().is_some_and(|m| m.contains(text));
        Ok(items.iter().any(told).then_some(()))
    })
}

/// An authority of a test, which issues certificates for keys.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new(name: &str) -> Result<Self> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key)?.pem();
        Ok(Self { issuer: Issuer::new(params, key), pem })
    }

    /// The status of a request for which a certificate is issued.
    fn issue(&self, request: &Value, name: &str) -> Result<Value> {
        let stub = request["spec"]["stubPKCS10Request"].as_str().context("no stub")?;
        let stub = STANDARD.decode(stub)?;
        let (_, stub) = X509CertificationRequest::from_der(&stub)?;
        let key = SubjectPublicKeyInfo::from_der(stub.certification_request_info.subject_pki.raw)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        let from = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        let at = |seconds: u64| UNIX_EPOCH + Duration::from_secs(seconds);
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = at(from).into();
        params.not_after = at(from + HOUR).into();
        let chain = params.signed_by(&key, &self.issuer)?.pem() + &self.pem;
        let text = |seconds: u64| {
            let time = jiff::Timestamp::from_second(i64::try_from(seconds)?)?;
            anyhow::Ok(time.to_string())
        };
        let mut status = verdict("Issued", "Issued", "")?;
        status["certificateChain"] = json!(chain);
        status["notBefore"] = json!(text(from)?);
        status["beginRefreshAt"] = json!(text(from + HOUR / 2)?);
        status["notAfter"] = json!(text(from + HOUR)?);
        Ok(status)
    }
}

fn verdict(kind: &str, reason: &str, message: &str) -> Result<Value> {
    let now = jiff::Timestamp::now().round(jiff::Unit::Second)?.to_string();
    Ok(json!({"conditions": [{"type": kind, "status": "True", "reason": reason, "message": message,
        "lastTransitionTime": now}]}))
}

/// The requests of a Pod without an answer, once there are so many.
fn pending(c: &Cluster, pod: &str, count: usize) -> Result<Vec<Value>> {
    eventually(&format!("{count} requests of {pod} wait"), || {
        let all: Value =
            serde_json::from_str(&c.kubectl(&["get", "podcertificaterequests", "-o", "json"])?)?;
        let mut items = all["items"].as_array().cloned().unwrap_or_default();
        items.retain(|r| r["spec"]["podName"] == pod && r["status"]["conditions"].is_null());
        Ok((items.len() == count).then_some(items))
    })
}

fn answer(c: &Cluster, request: &Value, status: &Value) -> Result<()> {
    let name = request["metadata"]["name"].as_str().context("no name")?;
    let patch = json!({"status": status}).to_string();
    let args = ["patch", "podcertificaterequest", name, "--subresource=status", "--type=merge", "-p", &patch];
    c.kubectl(&args).map(drop)
}

/// The certificates of a text, whatever their order.
fn anchors(text: &str) -> BTreeSet<Vec<u8>> {
    let all = rustls_pki_types::CertificateDer::pem_slice_iter(text.as_bytes());
    all.filter_map(|c| Some(c.ok()?.to_vec())).collect()
}

#[test]
fn pods_read_trust_bundles_as_they_change() -> Result<()> {
    let c = cluster("trust")?;
    let all = ["a", "b", "c"].map(Authority::new).into_iter().collect::<Result<Vec<_>>>()?;
    let bundle = |name: &str, signer: Option<&str>, live: &str, text: &str| {
        let mut object = json!({"apiVersion": "certificates.k8s.io/v1beta1", "kind": "ClusterTrustBundle",
            "metadata": {"name": name, "labels": {"live": live}}, "spec": {"trustBundle": text}});
        if let Some(signer) = signer {
            object["spec"]["signerName"] = json!(signer);
        }
        object.to_string()
    };
    let prefix = SIGNER.replace('/', ":");
    c.apply(&bundle("plain", None, "yes", &format!("a comment\n{}", all[0].pem)))?;
    c.apply(&bundle(&format!("{prefix}:1"), Some(SIGNER), "yes", &all[0].pem))?;
    c.apply(&bundle(&format!("{prefix}:2"), Some(SIGNER), "yes", &(all[0].pem.clone() + &all[1].pem)))?;
    c.apply(&bundle(&format!("{prefix}:3"), Some(SIGNER), "no", &all[2].pem))?;
    let live = json!({"matchLabels": {"live": "yes"}});
    pod(
        &c,
        "reads",
        &json!([
            {"clusterTrustBundle": {"name": "plain", "path": "named.pem"}},
            {"clusterTrustBundle": {"signerName": SIGNER, "labelSelector": live, "path": "signer.pem"}},
            {"clusterTrustBundle": {"signerName": SIGNER, "labelSelector": {}, "path": "all.pem"}},
            {"clusterTrustBundle": {"signerName": SIGNER, "optional": true, "path": "nothing.pem"}},
            {"clusterTrustBundle": {"name": "later", "optional": true, "path": "later.pem"}},
        ]),
    )?;
    running(&c, "reads")?;
    let read = |path: &str| Ok::<_, anyhow::Error>(anchors(&file(&c, "reads", path)?));
    let of = |numbers: &[usize]| numbers.iter().flat_map(|n| anchors(&all[*n].pem)).collect::<BTreeSet<_>>();
    assert_eq!(file(&c, "reads", "named.pem")?, all[0].pem.replace("\r\n", "\n"), "nothing but certificates");
    for (path, expected) in
        [("signer.pem", &[0, 1][..]), ("all.pem", &[0, 1, 2]), ("nothing.pem", &[]), ("later.pem", &[])]
    {
        assert_eq!(read(path)?, of(expected), "{path}");
    }
    let becomes = |path: &str, expected: &[usize]| {
        eventually(&format!("{path} has {expected:?}"), || Ok((read(path)? == of(expected)).then_some(())))
    };
    c.apply(&bundle("plain", None, "yes", &(all[1].pem.clone() + &all[2].pem)))?;
    becomes("named.pem", &[1, 2])?;
    c.apply(&bundle(&format!("{prefix}:3"), Some(SIGNER), "yes", &all[2].pem))?;
    becomes("signer.pem", &[0, 1, 2])?;
    c.apply(&bundle("later", None, "yes", &all[2].pem))?;
    becomes("later.pem", &[2])?;
    c.kubectl(&["delete", "clustertrustbundle", "later", &format!("{prefix}:1"), &format!("{prefix}:2")])?;
    becomes("later.pem", &[])?;
    becomes("all.pem", &[2])?;

    // One that is not optional is waited for.
    pod(&c, "waits", &json!([{"clusterTrustBundle": {"name": "late", "path": "late.pem"}}]))?;
    let missing =
        "while getting ClusterTrustBundle: clustertrustbundle.certificates.k8s.io \"late\" not found";
    event(&c, "waits", "FailedMount", missing)?;
    c.apply(&bundle("late", None, "yes", &all[0].pem))?;
    running(&c, "waits")?;
    assert_eq!(anchors(&file(&c, "waits", "late.pem")?), of(&[0]));
    Ok(())
}

#[test]
fn pods_have_the_certificates_that_a_signer_issues() -> Result<()> {
    let mut c = cluster("pod-certs")?;
    let authority = Authority::new("signer")?;
    let mut sources: Vec<Value> = KEY_TYPES
        .iter()
        .map(|kind| {
            json!({"podCertificate": {"signerName": SIGNER, "keyType": kind, "maxExpirationSeconds": HOUR,
                "credentialBundlePath": format!("{kind}.pem"), "userAnnotations": {"example.com/kind": kind}}})
        })
        .collect();
    sources.push(json!({"podCertificate": {"signerName": SIGNER, "keyType": "ED25519",
        "maxExpirationSeconds": HOUR, "keyPath": "tls.key", "certificateChainPath": "tls.crt"}}));
    let count = sources.len();
    pod(&c, "has", &json!(sources))?;
    let requests = pending(&c, "has", count)?;
    event(&c, "has", "FailedMount", "credential bundle is not issued yet")?;
    let (of_pod, node) = (c.get("pod", "has")?, c.get("node", c.host().name())?);
    let account = c.get("serviceaccount", "default")?;
    for request in &requests {
        let (meta, spec) = (&request["metadata"], &request["spec"]);
        assert!(meta["name"].as_str().is_some_and(|n| n.starts_with("req-")), "{meta}");
        let uid = &of_pod["metadata"]["uid"];
        let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": "has", "uid": uid}]);
        assert_eq!((&meta["ownerReferences"], &spec["podUID"]), (&owner, uid));
        assert_eq!((&spec["signerName"], &spec["serviceAccountName"]), (&json!(SIGNER), &json!("default")));
        assert_eq!(spec["serviceAccountUID"], account["metadata"]["uid"]);
        assert_eq!(
            (&spec["nodeName"], &spec["nodeUID"]),
            (&node["metadata"]["name"], &node["metadata"]["uid"])
        );
    }
    let kinds: BTreeSet<&str> = requests
        .iter()
        .filter_map(|r| r["spec"]["unverifiedUserAnnotations"]["example.com/kind"].as_str())
        .collect();
    assert_eq!(kinds, BTreeSet::from(KEY_TYPES));
    for request in &requests {
        answer(&c, request, &authority.issue(request, "first")?)?;
    }
    running(&c, "has")?;
    for kind in KEY_TYPES {
        belongs(&file(&c, "has", &format!("{kind}.pem"))?, &authority).with_context(|| kind.to_owned())?;
    }
    let (key, chain) = (file(&c, "has", "tls.key")?, file(&c, "has", "tls.crt")?);
    ensure!(!key.contains("CERTIFICATE") && !chain.contains("PRIVATE"), "each file has its own");
    belongs(&(key.clone() + &chain), &authority)?;
    let page = c.kubectl(&["get", "--raw", &format!("/api/v1/nodes/{}/proxy/metrics", c.host().name())])?;
    let states = format!("kubelet_podcertificate_states{{signer_name=\"{SIGNER}\",state=\"fresh\"}} {count}");
    assert!(page.lines().any(|l| l == states), "{states}");

    // A kubelet that starts again knows no keys: it asks for others, and the Pod has the old ones meanwhile.
    c.stop_ferrokube(Signal::TERM)?;
    c.start_ferrokube()?;
    c.wait_ready()?;
    let requests = pending(&c, "has", count)?;
    assert_eq!(file(&c, "has", "tls.key")?, key);
    for request in &requests {
        answer(&c, request, &authority.issue(request, "second")?)?;
    }
    eventually("the next key is there", || Ok((file(&c, "has", "tls.key")? != key).then_some(())))?;
    let (key, chain) = (file(&c, "has", "tls.key")?, file(&c, "has", "tls.crt")?);
    belongs(&(key + &chain), &authority)?;

    // The keys are in the Pods' files alone.
    let log = c.host().log("ferrokube");
    assert!(!log.contains("PRIVATE KEY"), "a key in the log");

    for (name, kind, what) in [("denied", "Denied", "was denied"), ("fails", "Failed", "failed")] {
        let source = json!([{"podCertificate": {"signerName": SIGNER, "keyType": "ED25519",
            "credentialBundlePath": "b.pem"}}]);
        pod(&c, name, &source)?;
        let request = pending(&c, name, 1)?.remove(0);
        answer(&c, &request, &verdict(kind, "NotYou", "not \"this\" Pod")?)?;
        let request = request["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let said = format!(
            "PodCertificateRequest default/{request} {what}, reason=\"NotYou\", message=\"not \\\"this\\\" Pod\""
        );
        event(&c, name, kind, &said)?;
        let permanent =
            format!("PodCertificateRequest was permanently {}: reason=\"NotYou\"", kind.to_lowercase());
        event(&c, name, "FailedMount", &permanent)?;
        assert_eq!(c.get("pod", name)?["status"]["phase"], "Pending");
    }
    c.kubectl(&["delete", "pod", "has", "denied", "fails"])?;
    eventually("requests go with their Pods", || {
        Ok(c.kubectl(&["get", "podcertificaterequests", "-o", "name"])?.is_empty().then_some(()))
    })
}

/// Checks that a key and certificates belong together, and that the authority's own comes last.
fn belongs(bundle: &str, authority: &Authority) -> Result<()> {
    let key = KeyPair::from_pem(bundle)?;
    let chain: Vec<_> = rustls_pki_types::CertificateDer::pem_slice_iter(bundle.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| anyhow::anyhow!("{e}"))?;
    ensure!(bundle.starts_with("-----BEGIN PRIVATE KEY-----\n"), "the key comes first");
    ensure!(chain.len() == 2 && anchors(&authority.pem).contains(chain[1].as_ref()), "the chain");
    let (_, leaf) = x509_parser::parse_x509_certificate(&chain[0])?;
    let own = rcgen::PublicKeyData::subject_public_key_info(&key);
    ensure!(leaf.public_key().raw == own.as_slice(), "another key's certificate");
    Ok(())
}
