//! What an author of objects can do to the hub with the right to write one kind of them: nothing, whatever their size
//! and number (invariant I16).

mod floods;
mod numbers;
