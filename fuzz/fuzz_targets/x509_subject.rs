#![cfg_attr(fuzzing, no_main)]

ferrokube_fuzz::target!(clients::x509_subject);
