//! Headers that name a caller count from front proxies alone.

use anyhow::{Result, ensure};
use serde_json::json;
use testkit::{Request, Server};

use crate::hostile::alive::serves_others;

fn whoami(request: Request) -> Result<(u16, String, Vec<String>)> {
    let review = json!({"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"});
    let answer = request.json(&review).send()?;
    let info = answer.json().unwrap_or_default()["status"]["userInfo"].clone();
    let groups = info["groups"].as_array().into_iter().flatten();
    let groups = groups.filter_map(|g| g.as_str()).map(str::to_owned).collect();
    Ok((answer.status, info["username"].as_str().unwrap_or_default().to_owned(), groups))
}

#[test]
fn nobody_else_names_a_user() -> Result<()> {
    let server = Server::start(&[])?;
    const REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let lies = |request: Request| {
        request
            .header("X-Remote-User", "root")
            .header("X-Remote-Group", "system:masters")
            .header("X-Remote-Extra-Scopes", "all")
    };
    let (status, name, groups) = whoami(lies(server.request("POST", REVIEWS)))?;
    ensure!((status, name.as_str()) == (201, "kubernetes-admin"), "{status} {name}");
    ensure!(groups == ["system:masters", "system:authenticated"], "{groups:?}");
    let (status, name, groups) = whoami(lies(server.anonymous("POST", REVIEWS)))?;
    ensure!(status == 403 || name == "system:anonymous", "{status} {name} {groups:?}");

    let file = |name: &str| server.path("data").join("pki").join(name);
    let (certificate, key) = (file("front-proxy-client.crt"), file("front-proxy-client.key"));
    let proxy = || server.with_certificate("POST", REVIEWS, &certificate, &key);
    let (status, name, groups) =
        whoami(proxy().header("X-Remote-User", "ann").header("X-Remote-Group", "a"))?;
    ensure!((status, name.as_str()) == (201, "ann"), "{status} {name}");
    ensure!(groups == ["a", "system:authenticated"], "{groups:?}");
    // Without a name, the certificate is nobody's.
    ensure!(whoami(proxy().header("X-Remote-Group", "system:masters"))?.0 == 401);
    ensure!(whoami(proxy().header("X-Remote-User", ""))?.0 == 401);
    // A node's or a controller's certificate names nobody else.
    let controllers = (file("controller-manager.crt"), file("controller-manager.key"));
    let other = server.with_certificate("POST", REVIEWS, &controllers.0, &controllers.1);
    ensure!(whoami(lies(other))?.1 == "system:kube-controller-manager");
    serves_others(&server)
}
