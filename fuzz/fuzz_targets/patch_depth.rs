#![cfg_attr(fuzzing, no_main)]

ferrokube_fuzz::target!(codecs::patches_in_depth);
