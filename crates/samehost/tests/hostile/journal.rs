//! Undo, recovery and the list of switches, with damaged journals and other users' locks.
