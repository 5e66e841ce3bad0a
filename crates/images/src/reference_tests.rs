use super::*;

/// distribution/reference's own cases (`normalize_test.go`, `reference_test.go`).
fn check(input: &str, expected: Result<&str, InvalidReference>) {
    let read = Reference::parse(input).map(|r| r.to_string());
    assert_eq!(read.as_deref().map_err(|e| *e), expected, "{input}");
    // A name in full is read as itself.
    if let Ok(full) = read {
        assert_eq!(Reference::parse(&full).map(|r| r.to_string()).as_deref(), Ok(&*full));
    }
}

const DIGEST: &str = "sha256:ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff";

#[test]
fn names_get_their_defaults() {
    check("redis", Ok("docker.io/library/redis:latest"));
    check("redis:7", Ok("docker.io/library/redis:7"));
    check("fooo/bar", Ok("docker.io/fooo/bar:latest"));
    check("index.docker.io/fooo/bar", Ok("docker.io/fooo/bar:latest"));
    check("library/ubuntu", Ok("docker.io/library/ubuntu:latest"));
    check("index.docker.io/ubuntu-12.04-base", Ok("docker.io/library/ubuntu-12.04-base:latest"));
    check("docker.io/foo", Ok("docker.io/library/foo:latest"));
    check("docker.io/library/foo/bar", Ok("docker.io/library/foo/bar:latest"));
    check("127.0.0.1:8000/privatebase", Ok("127.0.0.1:8000/privatebase:latest"));
    check("example.com:8000/private/moonbase", Ok("example.com:8000/private/moonbase:latest"));
    check("localhost/app", Ok("localhost/app:latest"));
    check("Foo/bar", Ok("Foo/bar:latest"));
    check("FOO/bar", Ok("FOO/bar:latest"));
    check("test_com/foo", Ok("docker.io/test_com/foo:latest"));
    check("test-com:8080/foo", Ok("test-com:8080/foo:latest"));
    check("xn--n3h.com:18080/foo", Ok("xn--n3h.com:18080/foo:latest"));
    check("dbcc1", Ok("docker.io/library/dbcc1:latest"));
}

#[test]
fn tags_and_digests() {
    check("test.com:tag", Ok("docker.io/library/test.com:tag"));
    check("test.com:5000", Ok("docker.io/library/test.com:5000"));
    check("test.com/repo:tag", Ok("test.com/repo:tag"));
    check("test:5000/repo", Ok("test:5000/repo:latest"));
    check("test:5000/repo:tag", Ok("test:5000/repo:tag"));
    check("192.168.1.1:5000/repo:5050", Ok("192.168.1.1:5000/repo:5050"));
    check("lowercase:Uppercase", Ok("docker.io/library/lowercase:Uppercase"));
    check("sub-dom1.foo.com/bar/baz/quux:some-long-tag", Ok("sub-dom1.foo.com/bar/baz/quux:some-long-tag"));
    check(
        "b.gcr.io/test.example.com/my-app:test.example.com",
        Ok("b.gcr.io/test.example.com/my-app:test.example.com"),
    );
    check(&format!("test:5000/repo@{DIGEST}"), Ok(&format!("test:5000/repo@{DIGEST}")));
    // The digest alone counts, as containerd's ParseDockerRef has it.
    check(&format!("busybox:latest@{DIGEST}"), Ok(&format!("docker.io/library/busybox@{DIGEST}")));
    let long = format!("sha512:{}", "f".repeat(128));
    check(&format!("xn--7o8h.com/myimage:t@{long}"), Ok(&format!("xn--7o8h.com/myimage@{long}")));
    check(&format!("repo@sha256:{}", "f".repeat(34)), Err(InvalidReference::Digest));
    check(&format!("validname@invaliddigest:{}", "f".repeat(128)), Err(InvalidReference::Digest));
}

#[test]
fn addresses_are_domains() {
    check("[2001:db8::1]:5000/repo:tag", Ok("[2001:db8::1]:5000/repo:tag"));
    check("[2001:db8::1]/repo", Ok("[2001:db8::1]/repo:latest"));
    check("[::1]:5000/repo", Ok("[::1]:5000/repo:latest"));
    check(&format!("[2001:db8::1]:5000/repo:tag@{DIGEST}"), Ok(&format!("[2001:db8::1]:5000/repo@{DIGEST}")));
    for bad in ["[2001:db8::1]", "[2001:db8::1]:5000", "[2001:db8::1]:tag", "[fe80::1%eth0]:5000/repo"] {
        check(bad, Err(InvalidReference::Format));
    }
    check("[fe80::1%@invalidzone]:5000/repo", Err(InvalidReference::Format));
    check("[2001:db8:3:4::192.0.2.33]:5000/debian", Err(InvalidReference::Format));
    check("fc00::1:5000/debian", Err(InvalidReference::Format));
}

#[test]
fn names_that_are_none() {
    for bad in [
        "",
        ":justtag",
        "@sha256:ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
        "https://github.com/docker/docker",
        "-docker",
        "-docker/docker",
        "-docker.io/docker/docker",
        "docker///docker",
        "docker.io/docker///docker",
        "docker-/docker",
        "-docker-/docker",
        "____/____",
        "_docker/_docker",
        "dock..er/docker",
        "dock_.er/docker",
        "dock-.er/docker",
        "docker/",
        "aa/asdf$$^/aa",
        "busybox:-foo",
        "busybox@foo",
        "a b",
        "busybox\n",
    ] {
        check(bad, Err(InvalidReference::Format));
    }
    check("docker/Docker", Err(InvalidReference::Uppercase));
    check("docker.io/docker/Docker", Err(InvalidReference::Uppercase));
    check("Uppercase:tag", Err(InvalidReference::Uppercase));
    check("test:5000/Uppercase/lowercase:tag", Err(InvalidReference::Uppercase));
    check(
        "1a3f5e7d9c1b3a5f7e9d1c3b5a7f9e1d3c5b7a9f1e3d5d7c9b1a3f5e7d9c1b3a",
        Err(InvalidReference::Identifier),
    );
    check(&format!("{}a:tag", "a/".repeat(128)), Err(InvalidReference::TooLong));
    check(&format!("a.b/{}", "a".repeat(256)), Err(InvalidReference::TooLong));
    check(&"a".repeat(5000), Err(InvalidReference::TooLong));
    check(&format!("busybox:{}", "a".repeat(129)), Err(InvalidReference::Format));
}

#[test]
fn names_that_are_valid() {
    for good in [
        "docker---rules/docker",
        "d/docker",
        "jess/t",
        "dock__er/docker",
        "thisisthesongthatneverendsitgoesonandonandonthisisthesongthatnev",
        "docker.io/1a3f5e7d9c1b3a5f7e9d1c3b5a7f9e1d3c5b7a9f1e3d5d7c9b1a3f5e7d9c1b3a",
        "192.168.0.1:8/debian",
        "[fc00:1:2:3:4:5:6:7]:5000/library/debian",
    ] {
        assert!(Reference::parse(good).is_ok(), "{good}");
    }
}
