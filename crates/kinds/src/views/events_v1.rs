//! `io.k8s.api.events.v1`

use super::core_v1;
use super::meta_v1;
use crate::view::prelude::*;

view! { Event event 522 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 EVENT_TIME event_time: &'a str;
    4 SERIES series: Option<EventSeries<'a>>;
    5 REPORTING_CONTROLLER reporting_controller: &'a str;
    6 REPORTING_INSTANCE reporting_instance: &'a str;
    7 ACTION action: &'a str;
    8 REASON reason: &'a str;
    9 REGARDING regarding: core_v1::ObjectReference<'a>;
    10 RELATED related: Option<core_v1::ObjectReference<'a>>;
    11 NOTE note: &'a str;
    12 TYPE type_: &'a str;
    13 DEPRECATED_SOURCE deprecated_source: core_v1::EventSource<'a>;
    14 DEPRECATED_FIRST_TIMESTAMP deprecated_first_timestamp: &'a str;
    15 DEPRECATED_LAST_TIMESTAMP deprecated_last_timestamp: &'a str;
    16 DEPRECATED_COUNT deprecated_count: i64;
} }

view! { EventList event_list 523 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, Event<'a>>;
} }

view! { EventSeries event_series 524 {
    0 COUNT count: i64;
    1 LAST_OBSERVED_TIME last_observed_time: &'a str;
} }
