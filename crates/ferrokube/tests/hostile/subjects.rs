//! Names and groups in certificates: subjects that two readers could read differently are refused.

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rcgen::string::{BmpString, PrintableString, TeletexString, UniversalString};
use rcgen::{
    CertificateParams, DistinguishedName, DnType, DnValue, ExtendedKeyUsagePurpose, Issuer, KeyPair,
};
use serde_json::{Value, json};
use testkit::Server;

use crate::hostile::alive::serves_others;

const MASTERS: &str = "system:masters";

fn value(kind: &str, text: &str) -> Result<DnValue> {
    Ok(match kind {
        "UTF8" => DnValue::Utf8String(text.into()),
        "Printable" => DnValue::PrintableString(PrintableString::try_from(text)?),
        "T61" => DnValue::TeletexString(TeletexString::try_from(text)?),
        "BMP" => DnValue::BmpString(BmpString::try_from(text)?),
        _ => DnValue::UniversalString(UniversalString::try_from(text)?),
    })
}

/// A subject of one organization and of common names.
fn subject(kind: &str, organization: &str, names: &[&str]) -> Result<CertificateParams> {
    let mut params = CertificateParams::default();
    let mut subject = DistinguishedName::new();
    subject.push(DnType::OrganizationName, value(kind, organization)?);
    for (i, name) in names.iter().enumerate() {
        // A second common name can only be set by the number of its type.
        let ty = if i == 0 { DnType::CommonName } else { DnType::CustomDnType(vec![2, 5, 4, 3]) };
        subject.push(ty, value("UTF8", name)?);
    }
    params.distinguished_name = subject;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    Ok(params)
}

fn request(name: &str, signer: &str, params: &CertificateParams) -> Result<Value> {
    let key = KeyPair::generate()?;
    let pem = params.serialize_request(&key)?.pem()?;
    Ok(json!({"metadata": {"name": name}, "spec": {
        "request": BASE64_STANDARD.encode(pem), "signerName": signer, "usages": ["client auth"]}}))
}

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

#[test]
fn no_request_makes_a_superuser() -> Result<()> {
    let server = Server::start(&[])?;
    let signer = "kubernetes.io/kube-apiserver-client";
    let masters =
        "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed";
    let unread = "failed to parse CSR: ";
    for (i, (kind, organization, names, refusal)) in [
        ("UTF8", "mine", &["me"][..], ""),
        ("T61", "mine", &["me"], ""),
        ("UTF8", MASTERS, &["me"], masters),
        ("Printable", MASTERS, &["me"], masters),
        ("T61", MASTERS, &["me"], masters),
        ("BMP", MASTERS, &["me"], masters),
        ("Universal", MASTERS, &["me"], unread),
        ("UTF8", "mine", &["me", "you"], unread),
    ]
    .into_iter()
    .enumerate()
    {
        let body = request(&format!("r{i}"), signer, &subject(kind, organization, names)?)?;
        let answer = server.request("POST", REQUESTS).json(&body).send()?;
        if refusal.is_empty() {
            answer.expect(201)?;
        } else {
            let message = answer.json()?["message"].as_str().unwrap_or_default().to_owned();
            ensure!(answer.status == 403 && message.contains(refusal), "{kind} {names:?}: {}", answer.text());
        }
    }
    serves_others(&server)
}

/// A text that is no request, or is not signed by the key in it, is not stored.
#[test]
fn a_request_is_signed_by_its_key() -> Result<()> {
    let server = Server::start(&[])?;
    let good = request("r", "example.com/signer", &subject("UTF8", "mine", &["me"])?)?;
    let pem = BASE64_STANDARD.decode(good["spec"]["request"].as_str().context("no request")?)?;
    let (_, text) = std::str::from_utf8(&pem)?.split_once("-----\n").context("no PEM")?;
    let text: String = text.split("-----END").next().context("no end")?.split_whitespace().collect();
    let der = BASE64_STANDARD.decode(text)?;
    let mut forged = der.clone();
    // This is the place of the name in the request.
    let at = forged.windows(4).position(|w| w == b"mine").context("no organization")?;
    forged[at] = b'w';
    let longer = [&der[..], b"x"].concat();
    for (i, (der, expected)) in
        [(der.clone(), 201), (forged, 422), (longer, 422), (b"nonsense".to_vec(), 422)]
            .into_iter()
            .enumerate()
    {
        let text = BASE64_STANDARD.encode(&der);
        let pem = format!("-----BEGIN CERTIFICATE REQUEST-----\n{text}\n-----END CERTIFICATE REQUEST-----\n");
        let mut body = good.clone();
        body["metadata"]["name"] = format!("r{i}").into();
        body["spec"]["request"] = BASE64_STANDARD.encode(pem).into();
        let answer = server.request("POST", REQUESTS).json(&body).send()?;
        ensure!(answer.status == expected, "{i}: {} {}", answer.status, answer.text());
    }
    Ok(())
}

#[test]
fn a_node_asks_for_its_own_certificate_only() -> Result<()> {
    let server = Server::start(&[])?;
    let signer = "kubernetes.io/kube-apiserver-client-kubelet";
    let own = "can only create a node CSR with CN=system:node:one";
    for (i, (names, refusal)) in [
        (&["system:node:one"][..], ""),
        (&["system:node:two"], own),
        (&["system:node:one", "system:node:two"], "unable to parse csr: "),
        (&[], own),
    ]
    .into_iter()
    .enumerate()
    {
        let body = request(&format!("n{i}"), signer, &subject("UTF8", "system:nodes", names)?)?;
        let asked = server.request("POST", REQUESTS).json(&body);
        let answer = asked
            .header("Impersonate-User", "system:node:one")
            .header("Impersonate-Group", "system:nodes")
            .send()?;
        if refusal.is_empty() {
            answer.expect(201)?;
        } else {
            let message = answer.json()?["message"].as_str().unwrap_or_default().to_owned();
            ensure!(
                answer.status == 403 && message.contains(refusal),
                "{names:?}: {} {}",
                answer.status,
                answer.text()
            );
        }
    }
    Ok(())
}

#[test]
fn a_certificate_names_one_user_or_nobody() -> Result<()> {
    let server = Server::start(&[])?;
    let pki = server.path("data").join("pki");
    let read = |name: &str| std::fs::read_to_string(pki.join(name)).with_context(|| name.to_owned());
    let issuer = Issuer::from_ca_cert_pem(&read("ca.crt")?, KeyPair::from_pem(&read("ca.key")?)?)?;
    let whoami = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    for (kind, names, expected) in [
        ("UTF8", &["me"][..], Some("me")),
        ("T61", &["me"], Some("me")),
        ("BMP", &["me"], Some("me")),
        ("Universal", &["me"], None),
        ("UTF8", &["me", "you"], None),
        ("UTF8", &[], None),
    ] {
        let key = KeyPair::generate()?;
        let certificate = subject(kind, "group", names)?.signed_by(&key, &issuer)?;
        let (crt, own) = (server.path("client.crt"), server.path("client.key"));
        std::fs::write(&crt, certificate.pem())?;
        std::fs::write(&own, key.serialize_pem())?;
        let answer = server.with_certificate("POST", whoami, &crt, &own).json(&json!({})).send()?;
        match expected {
            None => ensure!(answer.status == 401, "{kind} {names:?}: {} {}", answer.status, answer.text()),
            Some(name) => {
                let user = answer.expect(201)?.json()?["status"]["userInfo"].clone();
                ensure!(user["username"] == name, "{user}");
                ensure!(user["groups"] == json!(["group", "system:authenticated"]), "{kind}: {user}");
            }
        }
    }
    serves_others(&server)
}
