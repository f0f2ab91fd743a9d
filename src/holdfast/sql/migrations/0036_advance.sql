-- Functions that no release has, and that nobody calls any more.

-- It takes the query now, which says whether it names a state or only leaves it over.
drop function if exists bulk_states(text, text[]);

-- `clean_up_as` names who deletes.
drop function if exists clean_up(boolean, uuid, integer);

-- It did the turn and the portion in one transaction, so that a portion that failed altogether was not remembered.
drop function if exists advance_bulks(integer);
