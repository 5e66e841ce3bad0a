//! Messages and services of `etcdserverpb`, generated from `proto/rpc.proto`.
#![allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]

tonic::include_proto!("etcdserverpb");
