CREATE EXCEPT RULE bandwidth_rule1 WITH (elapsedtime=60, bandwidth=128, action='penalty');
CREATE RESOURCE POOL rp1 WITH (except_rule='bandwidth_rule1');
ALTER USER user1 RESOURCE POOL 'rp1';
SET low_priority_bandwidth='64MB'; SHOW RULES; SHOW POOLS; DROP RESOURCE POOL rp1;
