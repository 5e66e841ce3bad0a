#![cfg_attr(fuzzing, no_main)]

ferrokube_fuzz::target!(images::image_reference);
