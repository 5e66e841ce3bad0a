//! `io.k8s.api.scheduling.v1`

use super::meta_v1;
use crate::view::prelude::*;

view! { PriorityClass priority_class 812 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 VALUE value: i64;
    4 GLOBAL_DEFAULT global_default: bool;
    5 DESCRIPTION description: &'a str;
    6 PREEMPTION_POLICY preemption_policy: Option<&'a str>;
} }

view! { PriorityClassList priority_class_list 813 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, PriorityClass<'a>>;
} }
