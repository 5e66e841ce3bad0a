//! Headers with unusual values.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testkit::{Request, Server};

use crate::hostile::alive::serves_others;

const REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// A request for the user as whom the server takes the caller.
fn whoami(server: &Server) -> Request {
    let review = json!({"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"});
    server.request("POST", REVIEWS).json(&review)
}

#[test]
fn impersonation_is_never_ignored() -> Result<()> {
    let server = Server::start(&[])?;
    let args = ["--as=müller", "--as-group=größe", "--as-uid=ü"];
    let user: Value =
        serde_json::from_str(&server.kubectl(&[&args[..], &["auth", "whoami", "-o", "json"]].concat())?)?;
    assert_eq!(
        user["status"]["userInfo"],
        json!({"username": "müller", "uid": "ü", "groups": ["größe", "system:authenticated"]})
    );
    let refused = server.kubectl(&["--as=müller", "get", "secrets", "-A"]).unwrap_err().to_string();
    assert!(refused.contains("User \"müller\" cannot list resource \"secrets\""), "{refused}");

    const BAD: &[u8] = b"m\xfcller";
    let bad = |name: &str| [name.as_bytes(), b": ", BAD].concat();
    for version in ["--http1.1", "--http2"] {
        for name in ["Impersonate-User", "Impersonate-Uid", "Impersonate-Group", "Impersonate-Extra-Scopes"] {
            let request = whoami(&server).flag(version).raw_header(&bad(name));
            // A good name does not make up for another bad header.
            let request =
                if name == "Impersonate-User" { request } else { request.header("Impersonate-User", "bob") };
            let answer = request.send()?.expect(400).context(name)?;
            let message = format!("the value of the header {} is not UTF-8", name.to_lowercase());
            assert_eq!(answer.json()?["message"], message.as_str());
        }
        let extra = whoami(&server)
            .flag(version)
            .header("Impersonate-User", "bob")
            .header("Impersonate-Extra-%ff", "x");
        extra.send()?.expect(400)?;
        whoami(&server).flag(version).header("Impersonate-Group", "ü").send()?.expect(400)?;
        whoami(&server).flag(version).header("Impersonate-Extra-A", "ü").send()?.expect(400)?;
    }
    serves_others(&server)
}

#[test]
fn what_is_no_text_is_not_taken_for_nothing() -> Result<()> {
    let server = Server::start(&[])?;
    let check = |request: Request, status: u16| -> Result<()> {
        let answer = request.send()?;
        ensure!(answer.status == status, "{} instead of {status}: {}", answer.status, answer.text());
        Ok(())
    };
    for version in ["--http1.1", "--http2"] {
        let anonymous = || server.anonymous("GET", "/api/v1/namespaces").flag(version);
        check(server.get("/api/v1/namespaces").flag(version).raw_header(b"Accept: \xff"), 406)?;
        let post =
            server.request("POST", "/api/v1/namespaces").flag(version).flag("--data-binary").flag("{}");
        check(post.raw_header(b"Content-Type: \xff"), 415)?;
        check(anonymous(), 403)?;
        // A client with bad credentials is never taken for anonymous.
        check(anonymous().raw_header(b"Authorization: Bearer \xff"), 401)?;
        check(anonymous().raw_header("Authorization: Bearer ü".as_bytes()), 401)?;
    }
    let socket = |protocols: &[u8]| {
        let request = server.anonymous("GET", "/api/v1/namespaces?watch=1").flag("--http1.1");
        let request = request.header("Connection", "Upgrade").header("Upgrade", "websocket");
        request.raw_header(&[b"Sec-WebSocket-Protocol: ", protocols].concat())
    };
    // A wrong value in a query is not ignored: this is no dry run, and that selects nothing.
    let map = json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "made"}});
    check(server.request("POST", "/api/v1/namespaces?dryRun=%ff").json(&map), 422)?;
    check(server.get("/api/v1/namespaces/made"), 404)?;
    check(server.request("DELETE", "/api/v1/namespaces/default/configmaps?labelSelector=%ff"), 400)?;
    check(socket(b"a"), 403)?;
    check(socket(b"a, base64url.bearer.authorization.k8s.io.\xff"), 401)?;
    check(socket(b"\xff, base64url.bearer.authorization.k8s.io.dG9r"), 401)?;
    serves_others(&server)
}
