//! Files that somebody else chose: pipes, devices, terabytes, links that change.

mod command_lines;
