#![cfg_attr(fuzzing, no_main)]

ferrokube_fuzz::target!(dns::dns_answer);
