-- The streams of new jobs are looked up once, by `find_streams`.

drop function if exists make_streams(text, text[], text[]);
