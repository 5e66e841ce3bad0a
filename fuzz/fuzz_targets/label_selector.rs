#![cfg_attr(fuzzing, no_main)]

ferrokube_fuzz::target!(codecs::label_selectors);
