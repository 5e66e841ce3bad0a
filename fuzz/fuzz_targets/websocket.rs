#![cfg_attr(fuzzing, no_main)]

ferrokube_fuzz::target!(streaming::websocket_frames);
